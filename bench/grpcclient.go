package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/idemd/idemd/clients/go/idem"
	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// callersPerConn is how many callers share a connection, as those of one service do.
const callersPerConn = 64

// grpcClient speaks to idemd, and to echo.
type grpcClient struct {
	conns       []*grpc.ClientConn
	stubs       []stub
	next        atomic.Uint64
	tenant      string
	fingerprint *idemdv1.Fingerprint
	result      *idemdv1.Result
}

// stub makes calls over one connection.
type stub interface {
	Reserve(context.Context, *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error)
	Complete(context.Context, *idemdv1.CompleteRequest) (*idemdv1.CompleteResponse, error)
}

// unary makes each call on its own.
type unary struct {
	service idemdv1.IdempotencyServiceClient
}

func (u unary) Reserve(ctx context.Context, r *idemdv1.ReserveRequest) (*idemdv1.ReserveResponse, error) {
	return u.service.Reserve(ctx, r)
}

func (u unary) Complete(ctx context.Context, r *idemdv1.CompleteRequest) (*idemdv1.CompleteResponse, error) {
	return u.service.Complete(ctx, r)
}

func dial(address string, callers int, coalesced bool) (*grpcClient, error) {
	c := &grpcClient{
		tenant:      tenant,
		fingerprint: &idemdv1.Fingerprint{Scheme: "bench-v1", Digest: fingerprint()},
		result:      &idemdv1.Result{Status: status, ContentType: contentType, Body: body(), DecisionId: decisionID},
	}
	for range (callers + callersPerConn - 1) / callersPerConn {
		conn, err := grpc.NewClient(address, append(idem.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
		if coalesced {
			c.stubs = append(c.stubs, idem.New(conn, idem.Options{}))
		} else {
			c.stubs = append(c.stubs, unary{idemdv1.NewIdempotencyServiceClient(conn)})
		}
	}
	return c, nil
}

func (c *grpcClient) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// cycle implements client. What is left out is the namespace's default: 30 s, 7 d.
func (c *grpcClient) cycle(ctx context.Context, op operation) error {
	stub := c.stubs[c.next.Add(1)%uint64(len(c.stubs))]
	reserved, err := stub.Reserve(ctx, &idemdv1.ReserveRequest{
		Tenant: c.tenant, Namespace: namespace, Key: op.key, Fingerprint: c.fingerprint, OwnerToken: op.token,
		Owner: owner, PolicyVersion: policyVersion,
	})
	if err != nil {
		return err
	}
	if reserved.GetOwned() == nil {
		return fmt.Errorf("a fresh key was answered %v", reserved)
	}
	completed, err := stub.Complete(ctx, &idemdv1.CompleteRequest{
		Tenant: c.tenant, Namespace: namespace, Key: op.key, OwnerToken: op.token, Result: c.result,
	})
	if err != nil {
		return err
	}
	if completed.GetRepeated() {
		return errors.New("a first Complete was answered as repeated")
	}
	return nil
}
