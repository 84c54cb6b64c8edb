package main

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The exit codes, as documented in README.md.
const (
	exitDone        = 0
	exitUnexpected  = 1
	exitUsage       = 2
	exitInProgress  = 3
	exitReplay      = 4
	exitUnresolved  = 5
	exitRefused     = 6
	exitNotFound    = 7
	exitInvalid     = 8
	exitUnavailable = 9
	exitForbidden   = 10
)

// answered is a command that was answered, with something else than "done": the
// answer is printed already.
type answered int

func (a answered) Error() string { return fmt.Sprintf("exit code %d", int(a)) }

// usageError is what a person typed wrong.
type usageError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// statusOf finds the daemon's own answer in an error, however it was wrapped.
func statusOf(err error) (*status.Status, bool) {
	var from interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &from) {
		return nil, false
	}
	return from.GRPCStatus(), true
}

// reasonIn is the reason that a status gives; empty = none.
func reasonIn(st *status.Status) string {
	for _, detail := range st.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			return info.GetReason()
		}
	}
	return ""
}

func codeFor(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return exitUsage
	}
	st, ok := statusOf(err)
	if !ok {
		return exitUnexpected
	}
	switch st.Code() {
	case codes.FailedPrecondition, codes.Aborted:
		return exitRefused
	case codes.NotFound:
		return exitNotFound
	case codes.ResourceExhausted:
		if reason := reasonIn(st); reason == "RATE_LIMITED" || reason == "QUOTA_EXCEEDED" {
			return exitForbidden
		}
		return exitInvalid
	case codes.InvalidArgument:
		return exitInvalid
	case codes.Unauthenticated, codes.PermissionDenied:
		return exitForbidden
	case codes.Unavailable, codes.DeadlineExceeded:
		return exitUnavailable
	}
	return exitUnexpected
}

// describe is an error as a person reads it: the reason, the message and when to
// retry.
func describe(err error) string {
	st, ok := statusOf(err)
	if !ok {
		return err.Error()
	}
	var text strings.Builder
	for _, detail := range st.Details() {
		if info, is := detail.(*errdetails.ErrorInfo); is {
			fmt.Fprintf(&text, "%s: ", info.GetReason())
		}
	}
	text.WriteString(st.Message())
	for _, detail := range st.Details() {
		if retry, is := detail.(*errdetails.RetryInfo); is {
			fmt.Fprintf(&text, " (retry in %v)", retry.GetRetryDelay().AsDuration())
		}
	}
	// What was said around the daemon's answer.
	if _, around, found := strings.Cut(err.Error(), st.Message()); found {
		text.WriteString(around)
	}
	return text.String()
}
