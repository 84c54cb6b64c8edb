package torture

import (
	"context"
	"strings"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

// batch notes each command of a batch as the call that it would have been alone.
func (t *tap) batch(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	commands, err := commandsOf(args.(*idemdv1.BatchRequest))
	if err != nil {
		return err
	}
	sent := t.w.now()
	err = t.ClientConnInterface.Invoke(ctx, method, args, reply, options...)
	outcomes := reply.(*idemdv1.BatchResponse).GetOutcomes()
	for i, command := range commands {
		if err != nil {
			t.note(command, nil, err, sent)
			continue
		}
		answer := only(outcomes[i])
		var refused error
		if s, is := answer.(*idemdv1.Status); is {
			refused = status.FromProto(&spb.Status{Code: s.GetCode(), Message: s.GetMessage(), Details: s.GetDetails()}).Err()
		}
		t.note(command, answer, refused, sent)
	}
	return err
}

func (t *tap) note(request proto.Message, answer any, err error, sent time.Duration) {
	name := string(request.ProtoReflect().Descriptor().Name())
	call := rpc{method: strings.TrimSuffix(name, "Request"), sent: sent, heard: t.w.now()}
	call.read(answer, err)
	t.w.operationOf(request.(interface{ GetKey() string }).GetKey()).trace(request, call)
}

// commandsOf reads the commands from the wire: the client sends them encoded.
func commandsOf(r *idemdv1.BatchRequest) (commands []proto.Message, err error) {
	wire, err := proto.Marshal(r)
	if err != nil {
		return nil, err
	}
	read := &idemdv1.BatchRequest{}
	if err := proto.Unmarshal(wire, read); err != nil {
		return nil, err
	}
	for _, c := range read.GetCommands() {
		commands = append(commands, only(c))
	}
	return commands, nil
}

// only is the one message that is set in a command or an outcome.
func only(of proto.Message) (is proto.Message) {
	of.ProtoReflect().Range(func(_ protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		is = v.Message().Interface()
		return false
	})
	return is
}
