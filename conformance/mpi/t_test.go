package mpi

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/mpi"
)

// violationOf returns the violation that f ends the rank with, or nil.
func violationOf(f func(t *T)) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(rankFailed).violation
		}
	}()
	f(&T{})
	return nil
}

func TestMessageDataDiffer(t *testing.T) {
	for _, n := range []int{1, 8, 63, 5000} {
		for id := range 100 {
			if bytes.Equal(data(id, n), data(id+1, n)) || len(data(id, n)) != n || !bytes.Equal(data(id, n), data(id, n)) {
				t.Errorf("data(%d, %d) equals the next message, or has another length", id, n)
			}
		}
	}
	if len(data(1, 0)) != 0 {
		t.Error("data(1, 0) is not empty")
	}
	a, b := data(1, 5000), data(2, 5000)
	same := 0
	for i := range a {
		if a[i] == b[i] {
			same++
		}
	}
	if same > 100 {
		t.Errorf("%d of 5000 bytes of two messages are equal", same)
	}
}

// Every check ends the rank if its argument is wrong, and only then.
func TestChecksDetectViolations(t *testing.T) {
	want := data(3, 20)
	fill := func(change func(*guardedBuf)) *guardedBuf {
		r := newGuardedBuf(30)
		copy(r.buf, want)
		change(r)
		return r
	}
	for what, f := range map[string]func(*T){
		"content":                 func(t *T) { t.expectBuffer("it", fill(func(r *guardedBuf) { r.buf[19] ^= 1 }), want) },
		"guard before the buffer": func(t *T) { t.expectBuffer("it", fill(func(r *guardedBuf) { r.all[guardLen-1] = 0 }), want) },
		"guard after the buffer":  func(t *T) { t.expectBuffer("it", fill(func(r *guardedBuf) { r.all[guardLen+30] = 0 }), want) },
		"rest of the buffer":      func(t *T) { t.expectBuffer("it", fill(func(r *guardedBuf) { r.buf[20] = 0 }), want) },
		"shorter":                 func(t *T) { t.expectEqual("it", want[:19], want) },
		"longer":                  func(t *T) { t.expectEqual("it", want, want[:19]) },
		"error":                   func(t *T) { t.must("it", mpi.ErrArg) },
		"no error":                func(t *T) { t.mustFail("it", nil, mpi.ErrArg) },
		"another class":           func(t *T) { t.mustFail("it", mpi.ErrRank, mpi.ErrTag) },
		"source":                  func(t *T) { t.expectStatus("it", Status{Source: 1, Tag: 2, Count: 3}, 2, 2, 3) },
		"tag":                     func(t *T) { t.expectStatus("it", Status{Source: 1, Tag: 2, Count: 3}, 1, 3, 3) },
		"count":                   func(t *T) { t.expectStatus("it", Status{Source: 1, Tag: 2, Count: 3}, 1, 2, 4) },
		"cancelled":               func(t *T) { t.expectStatus("it", Status{Source: 1, Tag: 2, Count: 3, Cancelled: true}, 1, 2, 3) },
		"no request":              func(t *T) { started(nil, nil)(t, "it") },
		"truncation": func(t *T) {
			t.expectTruncated("it", fill(func(*guardedBuf) {}), Status{Count: 31}, mpi.ErrTruncate, data(3, 40))
		},
		"truncation, guard written": func(t *T) {
			t.expectTruncated("it", fill(func(r *guardedBuf) { r.all[guardLen+30] = 0 }), Status{Count: 20}, mpi.ErrTruncate, data(3, 40))
		},
		"truncation without an error": func(t *T) { t.expectTruncated("it", fill(func(*guardedBuf) {}), Status{Count: 20}, nil, data(3, 40)) },
	} {
		if err := violationOf(f); !conformance.IsViolation(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, f := range map[string]func(*T){
		"content": func(t *T) { t.expectBuffer("it", fill(func(*guardedBuf) {}), want) },
		"error":   func(t *T) { t.must("it", nil) },
		"class":   func(t *T) { t.mustFail("it", errors.Join(mpi.ErrTag), mpi.ErrTag) },
		"status":  func(t *T) { t.expectStatus("it", Status{Source: 1, Tag: 2, Count: 3}, 1, 2, 3) },
		"truncation": func(t *T) {
			t.expectTruncated("it", fill(func(*guardedBuf) {}), Status{Count: 20}, mpi.ErrTruncate, data(3, 40))
		},
	} {
		if err := violationOf(f); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
