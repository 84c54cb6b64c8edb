package fakedaemon

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	idemdv1 "github.com/idemd/idemd/gen/idemd/v1"
)

func (d *Daemon) lookup(r *idemdv1.LookupRequest) (proto.Message, error) {
	is := d.Record(r.GetTenant(), r.GetNamespace(), r.GetKey())
	if is == nil {
		return nil, refusal(codes.NotFound, "RESERVATION_NOT_FOUND")
	}
	return &idemdv1.LookupResponse{Reservation: is}, nil
}
