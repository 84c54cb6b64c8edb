package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

func TestAClientThatPingsEveryTenSecondsKeepsItsConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 35 s")
	}
	t.Parallel()
	p := serve(t, "--data-dir", t.TempDir())
	var dials atomic.Int64
	conn, err := grpc.NewClient(p.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.Connect()
	state := conn.GetState()
	for deadline := time.After(35 * time.Second); ; state = conn.GetState() {
		ctx, cancel := context.WithCancel(t.Context())
		changed := make(chan bool, 1)
		go func() { changed <- conn.WaitForStateChange(ctx, state) }()
		select {
		case <-changed:
			cancel()
			continue
		case <-deadline:
			cancel()
			if dials.Load() != 1 {
				t.Errorf("it had to connect %d times", dials.Load())
			}
			return
		}
	}
}

// Frames of HTTP/2, RFC 9113.
const (
	pingFrame     = 6
	settingsFrame = 4
	goAwayFrame   = 7
)

func frame(kind byte, payload []byte) []byte {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload)))[1:]
	return append(append(head, kind, 0, 0, 0, 0, 0), payload...)
}

func TestAClientThatPingsWithoutPauseIsThrownOut(t *testing.T) {
	p := serve(t, "--data-dir", t.TempDir())
	conn, err := net.Dial("tcp", p.grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	opening := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(settingsFrame, nil)...)
	for range 10 {
		opening = append(opening, frame(pingFrame, make([]byte, 8))...)
	}
	if _, err := conn.Write(opening); err != nil {
		t.Fatal(err)
	}
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatalf("the connection ends with %v, and without a reason", err)
		}
		payload := make([]byte, binary.BigEndian.Uint32(append([]byte{0}, head[:3]...)))
		if _, err := io.ReadFull(conn, payload); err != nil {
			t.Fatal(err)
		}
		if head[3] == goAwayFrame {
			if reason := string(payload[8:]); reason != "too_many_pings" {
				t.Errorf("thrown out for %q", reason)
			}
			return
		}
	}
}
