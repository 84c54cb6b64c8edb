package fault

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// TCP passes connections on to a server. Safe for use by several goroutines.
type TCP struct {
	listener net.Listener
	server   string

	mu    sync.Mutex
	cut   bool
	delay time.Duration
	loss  *loss // nil = no answer is lost
	open  map[net.Conn]struct{}
}

// loss is an answer to be swallowed.
type loss struct {
	request, end []byte
	done         chan struct{}
}

// NewTCP starts a proxy in front of the server at an address.
func NewTCP(server string) (*TCP, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &TCP{listener: listener, server: server, open: map[net.Conn]struct{}{}}
	go p.serve()
	return p, nil
}

// Addr is where the proxy listens, host:port.
func (p *TCP) Addr() string { return p.listener.Addr().String() }

// Close ends the proxy and its connections.
func (p *TCP) Close() {
	p.listener.Close()
	p.Cut()
}

// Cut ends all connections, and new ones at once, until Restore.
func (p *TCP) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for conn := range p.open {
		conn.Close()
	}
}

// Restore ends Cut.
func (p *TCP) Restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}

// Delay makes whatever arrives wait before it is passed on, in both directions.
func (p *TCP) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// LoseAnswer passes on the next request that contains the bytes given, swallows the
// server's answer up to its end, and cuts that connection. The channel is closed when
// that has happened.
func (p *TCP) LoseAnswer(request, end []byte) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss = &loss{request: request, end: end, done: make(chan struct{})}
	return p.loss.done
}

func (p *TCP) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.connect(client)
	}
}

func (p *TCP) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.keep(client, server) {
		return
	}
	defer p.forget(client, server)
	l := &link{proxy: p, client: client, server: server}
	go l.requests()
	l.answers()
}

func (p *TCP) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return false
	}
	for _, conn := range conns {
		p.open[conn] = struct{}{}
	}
	return true
}

func (p *TCP) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.open, conn)
	}
}

// takeLoss hands out the loss if this request is the one.
func (p *TCP) takeLoss(request []byte) *loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.loss
	if l == nil || !bytes.Contains(request, l.request) {
		return nil
	}
	p.loss = nil
	return l
}

func (p *TCP) pause() {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	if d > 0 {
		<-time.After(d)
	}
}

// link is one connection through the proxy.
type link struct {
	proxy          *TCP
	client, server net.Conn

	mu   sync.Mutex
	loss *loss // the answer that is being swallowed
}

func (l *link) requests() {
	defer l.server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.client.Read(buffer)
		if err != nil {
			return
		}
		l.proxy.pause()
		if lost := l.proxy.takeLoss(buffer[:n]); lost != nil {
			l.mu.Lock()
			l.loss = lost
			l.mu.Unlock()
		}
		if _, err := l.server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (l *link) answers() {
	buffer := make([]byte, 64<<10)
	for {
		n, err := l.server.Read(buffer)
		if err != nil {
			return
		}
		l.proxy.pause()
		l.mu.Lock()
		lost := l.loss
		l.mu.Unlock()
		if lost == nil {
			if _, err := l.client.Write(buffer[:n]); err != nil {
				return
			}
			continue
		}
		if bytes.HasSuffix(buffer[:n], lost.end) {
			close(lost.done)
			return
		}
	}
}
