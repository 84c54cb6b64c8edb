package main

import (
	"context"
	"crypto/ecdsa"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// The tokens of the tests, by whose they are.
const (
	callerToken   = "caller-token"
	rotatedToken  = "caller-token-new"
	expiredToken  = "caller-token-old"
	resolverToken = "resolver-token"
	operatorToken = "operator-token"
	rivalToken    = "rival-token"
	scraperToken  = "scraper-token"
)

// twoTenants is a configuration with two tenants and everybody who may call, and keys of
// an issuer that signs for the caller.
func twoTenants(t *testing.T, more string) (path string, issuer *ecdsa.PrivateKey) {
	t.Helper()
	dir, issuer := t.TempDir(), newKey(t)
	keys := write(t, dir, "jwks.json", jwks(t, issuer.Public()))
	return write(t, dir, "idemd.yaml", []byte(fmt.Sprintf(`
tenants: [acme, rival]
authentication:
  identities:
    caller:
      tenants: acme
      roles: caller
      tokens: [%s, %s, {sha256: %s, not_after: 2020-01-01T00:00:00Z}]
      certificates: [{uri: "spiffe://test/caller"}]
    resolver: {tenants: acme, roles: resolver, tokens: %s}
    operator: {tenants: acme, roles: operator, tokens: %s}
    rival: {tenants: rival, roles: [caller, resolver, operator], tokens: %s, certificates: [{uri: "spiffe://test/rival"}]}
    scraper: {roles: metrics, tokens: %s}
  jwt:
    corp:
      issuer: https://corp.test
      audience: idemd
      jwks_file: %s
      algorithms: ES256
      identities: {build-bot: caller}
%s`, hashOf(callerToken), hashOf(rotatedToken), hashOf(expiredToken), hashOf(resolverToken), hashOf(operatorToken), hashOf(rivalToken), hashOf(scraperToken),
		keys, more))), issuer
}

func claims(change func(map[string]any)) map[string]any {
	all := map[string]any{"iss": "https://corp.test", "aud": "idemd", "sub": "build-bot", "exp": time.Now().Add(time.Hour).Unix()}
	if change != nil {
		change(all)
	}
	return all
}

// methods are all RPCs of both services, also those that are added later.
func methods(t *testing.T) (all []protoreflect.MethodDescriptor) {
	t.Helper()
	for _, name := range []protoreflect.FullName{"idemd.v1.IdempotencyService", "idemd.v1.OperatorService"} {
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		of := found.(protoreflect.ServiceDescriptor).Methods()
		for i := range of.Len() {
			all = append(all, of.Get(i))
		}
	}
	if len(all) < 7 {
		t.Fatalf("only %d RPCs were found", len(all))
	}
	return all
}

// invoke makes a call about a tenant and a key. A batch's refusal is that of its only
// command.
func (c *client) invoke(ctx context.Context, t *testing.T, method protoreflect.MethodDescriptor, tenant, key string) error {
	t.Helper()
	message := func(of protoreflect.MessageDescriptor) proto.Message {
		kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
		if err != nil {
			t.Fatal(err)
		}
		return kind.New().Interface()
	}
	request, response := message(method.Input()), message(method.Output())
	if batch, is := request.(*idemdv1.BatchRequest); is {
		batch.Commands = []*idemdv1.BatchCommand{{Command: &idemdv1.BatchCommand_Lookup{Lookup: &idemdv1.LookupRequest{Tenant: tenant, Key: key}}}}
	}
	for name, value := range map[protoreflect.Name]string{"tenant": tenant, "key": key} {
		if field := method.Input().Fields().ByName(name); field != nil {
			request.ProtoReflect().Set(field, protoreflect.ValueOfString(value))
		}
	}
	err := c.conn.Invoke(ctx, fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()), request, response)
	if batch, is := response.(*idemdv1.BatchResponse); is && err == nil {
		if failed := batch.GetOutcomes()[0].GetError(); failed != nil {
			err = status.FromProto(&spb.Status{Code: failed.GetCode(), Message: failed.GetMessage(), Details: failed.GetDetails()}).Err()
		}
	}
	return err
}

func with(t *testing.T, authorization ...string) context.Context {
	t.Helper()
	ctx := bounded(t)
	for _, value := range authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
	}
	return ctx
}

func reasonOf(err error) string { return reasonIn(status.Convert(err)) }

// mayCall are the identities that may make a call.
func mayCall(method protoreflect.MethodDescriptor) []string {
	switch name := method.Name(); {
	case name == "Lookup":
		return []string{callerToken, resolverToken, operatorToken}
	case method.Parent().Name() == "IdempotencyService":
		return []string{callerToken}
	case name == "Resolve":
		return []string{resolverToken, operatorToken}
	}
	return []string{operatorToken}
}

func TestNobodyGetsInWithoutAGoodCredential(t *testing.T) {
	path, issuer := twoTenants(t, "")
	stranger := newKey(t)
	without := func(claim string) func(map[string]any) { return func(c map[string]any) { delete(c, claim) } }
	set := func(claim string, value any) func(map[string]any) { return func(c map[string]any) { c[claim] = value } }
	bad := map[string][]string{
		"nothing":                {},
		"a wrong token":          {"Bearer nobody's"},
		"an unknown token":       {"Bearer nobodys-token"},
		"an expired token":       {"Bearer " + expiredToken},
		"the digest of a token":  {"Bearer " + hashOf(callerToken)},
		"no scheme":              {callerToken},
		"another scheme":         {"Basic " + callerToken},
		"an empty token":         {"Bearer "},
		"two tokens":             {"Bearer " + callerToken, "Bearer " + callerToken},
		"a token twice":          {"Bearer " + callerToken + " " + callerToken},
		"a stranger's JWT":       {"Bearer " + jwtBy(t, stranger, claims(nil))},
		"an expired JWT":         {"Bearer " + jwtBy(t, issuer, claims(set("exp", time.Now().Add(-time.Hour).Unix())))},
		"a JWT without end":      {"Bearer " + jwtBy(t, issuer, claims(without("exp")))},
		"a JWT of tomorrow":      {"Bearer " + jwtBy(t, issuer, claims(set("nbf", time.Now().Add(time.Hour).Unix())))},
		"a JWT for others":       {"Bearer " + jwtBy(t, issuer, claims(set("aud", "another")))},
		"a JWT without audience": {"Bearer " + jwtBy(t, issuer, claims(without("aud")))},
		"another issuer's JWT":   {"Bearer " + jwtBy(t, issuer, claims(set("iss", "https://other.test")))},
		"a JWT of nobody here":   {"Bearer " + jwtBy(t, issuer, claims(set("sub", "somebody")))},
		"an unsigned JWT":        {"Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2NvcnAudGVzdCJ9."},
	}
	for _, b := range backends(t) {
		p := serve(t, append(b.flags, "--config", path)...)
		c := dial(t, p.grpc)
		for _, method := range methods(t) {
			for what, authorization := range bad {
				err := c.invoke(with(t, authorization...), t, method, "acme", "k")
				if status.Code(err) != codes.Unauthenticated || reasonOf(err) != "UNAUTHENTICATED" {
					t.Errorf("%s: %s with %s: %v", b.name, method.Name(), what, err)
				}
				holdsNothingOf(t, err, "acme", "rival", callerToken, "build-bot")
			}
			for _, token := range []string{callerToken, rotatedToken, resolverToken, operatorToken, jwtBy(t, issuer, claims(nil))} {
				err := c.invoke(with(t, "Bearer "+token), t, method, "acme", "k")
				if status.Code(err) == codes.Unauthenticated {
					t.Errorf("%s: %s with a good credential: %v", b.name, method.Name(), err)
				}
			}
		}
	}
}

func TestEachRPCNeedsItsRole(t *testing.T) {
	path, _ := twoTenants(t, "")
	for _, b := range backends(t) {
		c := dial(t, serve(t, append(b.flags, "--config", path)...).grpc)
		for _, method := range methods(t) {
			for _, token := range []string{callerToken, resolverToken, operatorToken, scraperToken} {
				err := c.invoke(with(t, "Bearer "+token), t, method, "acme", "k")
				refused := status.Code(err) == codes.PermissionDenied && reasonOf(err) == "ROLE_REQUIRED"
				if may := slices.Contains(mayCall(method), token); may == refused || may && status.Code(err) == codes.PermissionDenied {
					t.Errorf("%s: %s with the %s: %v", b.name, method.Name(), token, err)
				}
			}
		}
		breaking := &idemdv1.ResolveRequest{Tenant: "acme", Key: "k", Reason: "r", BreakLease: true, ExpectedVersion: 1, Verdict: idemdv1.Verdict_VERDICT_NOT_EXECUTED}
		if _, err := c.operator.Resolve(with(t, "Bearer "+resolverToken), breaking); reasonOf(err) != "ROLE_REQUIRED" {
			t.Errorf("%s: a resolver breaks a lease: %v", b.name, err)
		}
		if _, err := c.operator.Resolve(with(t, "Bearer "+operatorToken), breaking); status.Code(err) != codes.NotFound {
			t.Errorf("%s: an operator breaks a lease: %v", b.name, err)
		}
	}
}

// What is answered about others' tenants is one and the same, whatever there is.
func TestAnothersTenantIsForbiddenWhetherItExistsOrNot(t *testing.T) {
	path, _ := twoTenants(t, "")
	for _, b := range backends(t) {
		c := dial(t, serve(t, append(b.flags, "--config", path)...).grpc)
		reserved, err := c.Reserve(with(t, "Bearer "+rivalToken), &idemdv1.ReserveRequest{
			Key: "there", OwnerToken: randomToken(), Fingerprint: fingerprint(), // the tenant is the only one
		})
		if err != nil || reserved.GetOwned() == nil {
			t.Fatalf("%s: the rival's own: %v, %v", b.name, reserved, err)
		}
		for _, method := range methods(t) {
			if method.Input().Fields().ByName("tenant") == nil && method.Name() != "Batch" {
				t.Errorf("%s is about no tenant: does it keep to the identity's?", method.Name())
			}
			for _, token := range mayCall(method) {
				for _, about := range [][2]string{{"rival", "there"}, {"rival", "absent"}, {"nobody", "k"}, {"NO NAME", "k"}, {strings.Repeat("x", 1000), "k"}} {
					err := c.invoke(with(t, "Bearer "+token), t, method, about[0], about[1])
					if status.Code(err) != codes.PermissionDenied || reasonOf(err) != "TENANT_FORBIDDEN" || status.Convert(err).Message() != "tenant is not one of this identity's" {
						t.Errorf("%s: %s about %.10s/%s with the %s: %v", b.name, method.Name(), about[0], about[1], token, err)
					}
				}
			}
		}
	}
}

func TestAForbiddenCommandFailsItselfOnly(t *testing.T) {
	path, _ := twoTenants(t, "")
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			c := dial(t, serve(t, append(b.flags, "--config", path)...).grpc)
			failsItselfOnly(t, c)
		})
	}
}

func failsItselfOnly(t *testing.T, c *client) {
	reserve := func(tenant string) *idemdv1.BatchCommand {
		return &idemdv1.BatchCommand{Command: &idemdv1.BatchCommand_Reserve{Reserve: &idemdv1.ReserveRequest{
			Tenant: tenant, Key: "k-" + tenant, OwnerToken: randomToken(), Fingerprint: fingerprint(),
		}}}
	}
	answer, err := c.Batch(with(t, "Bearer "+callerToken), &idemdv1.BatchRequest{Commands: []*idemdv1.BatchCommand{reserve("acme"), reserve("rival"), reserve("")}})
	if err != nil {
		t.Fatal(err)
	}
	outcomes := answer.GetOutcomes()
	if outcomes[0].GetReserve().GetOwned() == nil || outcomes[2].GetReserve().GetOwned() == nil ||
		codes.Code(outcomes[1].GetError().GetCode()) != codes.PermissionDenied {
		t.Errorf("the batch is answered %v", outcomes)
	}
}

func TestEveryPathOfHTTPNeedsItsRole(t *testing.T) {
	path, issuer := twoTenants(t, "listen: {pprof: true}")
	for _, b := range backends(t) {
		t.Run(b.name, func(t *testing.T) {
			everyPathNeedsItsRole(t, serve(t, append(b.flags, "--config", path)...), jwtBy(t, issuer, claims(nil)))
		})
	}
	plain := serve(t, "--data-dir", t.TempDir())
	if code := get(t, http.DefaultClient, "http://"+plain.http+"/debug/pprof/", ""); code != http.StatusNotFound {
		t.Errorf("profiles that nobody asked for answer %d", code)
	}
}

func everyPathNeedsItsRole(t *testing.T, p *process, callersJWT string) {
	operators, scrapers := []string{operatorToken, rivalToken}, []string{operatorToken, rivalToken, scraperToken}
	everybody := []string{"", "nobodys", expiredToken, callerToken, callersJWT, resolverToken, operatorToken, rivalToken, scraperToken}
	for where, may := range map[string][]string{
		"/livez": everybody, "/readyz": everybody, "/metrics": scrapers, "/debug/pprof/": operators, "/debug/pprof/heap": operators,
	} {
		for _, token := range everybody {
			want := http.StatusOK
			switch {
			case slices.Contains(may, token):
			case token == "" || token == "nobodys" || token == expiredToken:
				want = http.StatusUnauthorized
			default:
				want = http.StatusForbidden
			}
			if code := get(t, http.DefaultClient, "http://"+p.http+where, token); code != want {
				t.Errorf("%s with the token %.20q answers %d, want %d", where, token, code, want)
			}
		}
	}
	if code := get(t, http.DefaultClient, "http://"+p.http+"/debug/pprof/cmdline", operatorToken); code != http.StatusNotFound {
		t.Errorf("the command line, which may hold a password, answers %d", code)
	}
}

func get(t *testing.T, c *http.Client, address, token string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(bounded(t), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// holdsNothingOf demands that an error tells nothing of what its receiver must not know.
func holdsNothingOf(t *testing.T, err error, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(status.Convert(err).Message(), secret) {
			t.Errorf("%q is in: %v", secret, err)
		}
	}
}
