package mpi_test

import (
	"bytes"
	"testing"

	cases "github.com/fabrictest/fabrictest/conformance/mpi"
)

func TestPayloadsDiffer(t *testing.T) {
	for _, n := range []int{1, 8, 63, 5000} {
		for id := range 100 {
			if bytes.Equal(cases.Payload(id, n), cases.Payload(id+1, n)) || len(cases.Payload(id, n)) != n || !bytes.Equal(cases.Payload(id, n), cases.Payload(id, n)) {
				t.Errorf("Payload(%d, %d) equals the next message, or has another length", id, n)
			}
		}
	}
	if len(cases.Payload(1, 0)) != 0 {
		t.Error("Payload(1, 0) is not empty")
	}
	a, b := cases.Payload(1, 5000), cases.Payload(2, 5000)
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

func TestWritesOutsideOfMessageAreFound(t *testing.T) {
	for _, offset := range []int{-cases.GuardLen, -1, 0, 19, 20, 29, 30, 30 + cases.GuardLen - 1} {
		g := cases.NewGuarded(30)
		if len(g.Buf()) != 30 || cap(g.Buf()) != 30 {
			t.Fatalf("a buffer of %d bytes, with room for %d", len(g.Buf()), cap(g.Buf()))
		}
		copy(g.Buf(), cases.Payload(3, 20))
		if at, _, found := g.WrittenOutside(20); found {
			t.Errorf("byte %d counts as written outside of the message", at)
		}
		g[cases.GuardLen+offset] = 0x11
		at, value, found := g.WrittenOutside(20)
		if outside := offset < 0 || offset >= 20; found != outside || found && (at != offset || value != 0x11) {
			t.Errorf("byte %d written: found %v, at %d with %#x", offset, found, at, value)
		}
	}
}
