package verbs_test

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/fabrictest/fabrictest/verbs"
)

func TestOpErrorContainsVerbObjectAndCause(t *testing.T) {
	for _, tc := range []struct {
		err  *OpError
		want string
	}{
		{&OpError{Op: "modify_qp", Obj: "qp 0x11", Err: ErrInvalid}, "modify_qp qp 0x11: invalid argument"},
		{&OpError{Op: "create_srq", Err: ErrNotSupported}, "create_srq: not supported"},
	} {
		if got := tc.err.Error(); got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestErrorsIsAndAsUnwrapOpError(t *testing.T) {
	inner := fmt.Errorf("%w: port 3 of 1", ErrNotFound)
	err := fmt.Errorf("bench: %w", &OpError{Op: "query_port", Obj: "rxe0", Err: inner})
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
		t.Errorf("errors.Is is wrong about %v", err)
	}
	var op *OpError
	if !errors.As(err, &op) || op.Op != "query_port" || op.Obj != "rxe0" || op.Unwrap() != inner {
		t.Errorf("errors.As found %+v in %v", op, err)
	}
}

func TestSentinelsAreDistinct(t *testing.T) {
	all := []error{
		ErrNotSupported, ErrInvalid, ErrNoMemory, ErrBusy, ErrPerm, ErrNotFound, ErrTimeout, ErrClosed, ErrRejected, ErrOverrun,
	}
	for i, a := range all {
		for j, b := range all {
			if errors.Is(a, b) != (i == j) {
				t.Errorf("errors.Is(%v, %v) is %v", a, b, i != j)
			}
		}
	}
}

func TestRejectErrorIsErrRejected(t *testing.T) {
	reject := &RejectError{Reason: 8, Text: "invalid service ID", PrivateData: []byte("why")}
	err := fmt.Errorf("rank 3: %w", &OpError{Op: "connect", Err: reject})
	if !errors.Is(err, ErrRejected) || errors.Is(err, ErrTimeout) {
		t.Errorf("errors.Is is wrong about %v", err)
	}
	var got *RejectError
	if !errors.As(err, &got) || got.Reason != 8 || string(got.PrivateData) != "why" {
		t.Errorf("errors.As found %+v", got)
	}
	if want := "rank 3: connect: connection rejected: invalid service ID (reason 8)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
