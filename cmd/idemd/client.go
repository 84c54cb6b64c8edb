package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
	"github.com/idemd/idemd/internal/daemon"
)

// clientFlags say which daemon to ask and how to print.
type clientFlags struct {
	Addr    string        `default:"127.0.0.1:7070" help:"The daemon's gRPC address." placeholder:"HOST:PORT"`
	Timeout time.Duration `default:"10s" help:"How long to wait for the answer, beyond --wait."`
	Output  string        `short:"o" default:"table" enum:"table,json" help:"How to print: table or json."`
	identityFlags
}

// holding leaves time for a call that is held.
func (f clientFlags) holding(wait *time.Duration) clientFlags {
	if wait != nil && *wait > 0 {
		f.Timeout += *wait
	}
	return f
}

// addressFlags name a reservation.
type addressFlags struct {
	Key       string `arg:"" help:"The name of the operation: the same on every retry."`
	Tenant    string `short:"t" help:"Who the key belongs to; may be left out by an identity with one tenant."`
	Namespace string `short:"n" default:"default" help:"Group of operations with one policy."`
}

// dialled calls a daemon within the time-out.
func (f clientFlags) dialled(call func(context.Context, *grpc.ClientConn) error) error {
	transport, err := f.transport()
	if err != nil {
		return usageError{err}
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(daemon.MaxMessageBytes), grpc.MaxCallSendMsgSize(daemon.MaxMessageBytes)),
	}
	token, err := f.bearer(f.Addr)
	if err != nil {
		return usageError{err}
	}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(token))
	}
	conn, err := grpc.NewClient(f.Addr, options...)
	if err != nil {
		return usageError{err}
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), f.Timeout)
	defer cancel()
	return call(ctx, conn)
}

// tokenFlag is the proof of ownership of an attempt.
type tokenFlag struct {
	Token string `required:"" env:"IDEMD_OWNER_TOKEN" help:"The owner token that reserve printed, in hex." placeholder:"HEX"`
}

func (f tokenFlag) bytes() ([]byte, error) { return decodeHex("--token", f.Token) }

func newToken() []byte {
	token := make([]byte, 16)
	_, _ = rand.Read(token) // never fails: see crypto/rand
	return token
}

func decodeHex(flag, text string) ([]byte, error) {
	decoded, err := hex.DecodeString(text)
	if err != nil {
		return nil, usagef("%s must be hex: %v", flag, err)
	}
	return decoded, nil
}

// fingerprintFlags say what an operation means.
type fingerprintFlags struct {
	Operation   string `xor:"meaning" required:"" help:"What the operation means, in any words; its SHA-256 is the fingerprint." placeholder:"TEXT"`
	Fingerprint string `xor:"meaning" required:"" help:"The fingerprint as scheme:hexdigest." placeholder:"SCHEME:HEX"`
}

func (f fingerprintFlags) message() (*idemdv1.Fingerprint, error) {
	if f.Fingerprint == "" {
		if strings.TrimSpace(f.Operation) == "" {
			return nil, usagef("--operation must not be empty: every operation needs a meaning of its own")
		}
		digest := sha256.Sum256([]byte(f.Operation))
		return &idemdv1.Fingerprint{Scheme: "cli-sha256-v1", Digest: digest[:]}, nil
	}
	scheme, text, found := strings.Cut(f.Fingerprint, ":")
	if !found {
		return nil, usagef("--fingerprint must be scheme:hexdigest")
	}
	digest, err := decodeHex("--fingerprint", text)
	return &idemdv1.Fingerprint{Scheme: scheme, Digest: digest}, err
}

// resultFlags are a result.
type resultFlags struct {
	Status      int32    `help:"Status number of the result."`
	Header      []string `help:"Header of the result; may be repeated." placeholder:"NAME=VALUE" sep:"none"`
	ContentType string   `help:"Media type of the body."`
	Body        string   `xor:"body" help:"Body of the result."`
	BodyFile    string   `xor:"body" help:"File with the body; - is standard input." placeholder:"FILE"`
	BodyOmitted bool     `help:"The operation is done, but its body is not kept."`
	BodyRef     string   `help:"Where the omitted body is."`
	DecisionID  string   `help:"Business id of what was done."`
}

func (f resultFlags) given() bool {
	return f.Status != 0 || len(f.Header) > 0 || f.ContentType != "" || f.Body != "" || f.BodyFile != "" ||
		f.BodyOmitted || f.DecisionID != ""
}

func (f resultFlags) message(stdin io.Reader) (*idemdv1.Result, error) {
	body, err := f.body(stdin)
	if err != nil {
		return nil, err
	}
	result := &idemdv1.Result{
		Status: f.Status, ContentType: f.ContentType, Body: body,
		BodyOmitted: f.BodyOmitted, BodyRef: f.BodyRef, DecisionId: f.DecisionID,
	}
	for _, h := range f.Header {
		name, value, found := strings.Cut(h, "=")
		if !found {
			return nil, usagef("--header must be name=value")
		}
		result.Headers = append(result.Headers, &idemdv1.Header{Name: name, Value: []byte(value)})
	}
	return result, nil
}

func (f resultFlags) body(stdin io.Reader) ([]byte, error) {
	switch f.BodyFile {
	case "":
		return []byte(f.Body), nil
	case "-":
		return readBody(stdin)
	}
	file, err := os.Open(f.BodyFile)
	if err != nil {
		return nil, usageError{err}
	}
	defer file.Close()
	return readBody(file)
}

// readBody reads no more than could be sent.
func readBody(from io.Reader) ([]byte, error) {
	return io.ReadAll(io.LimitReader(from, daemon.MaxMessageBytes))
}
