package payload

import (
	"bytes"
	"testing"
)

func TestMessageDataDiffer(t *testing.T) {
	for _, n := range []int{1, 8, 63, 5000} {
		for id := range 100 {
			if bytes.Equal(Data(id, n), Data(id+1, n)) || len(Data(id, n)) != n || !bytes.Equal(Data(id, n), Data(id, n)) {
				t.Errorf("Data(%d, %d) equals the next message, or has another length", id, n)
			}
		}
	}
	if len(Data(1, 0)) != 0 {
		t.Error("Data(1, 0) is not empty")
	}
	a, b := Data(1, 5000), Data(2, 5000)
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
	for _, offset := range []int{-guardLen, -1, 0, 19, 20, 29, 30, 30 + guardLen - 1} {
		g := NewGuarded(30)
		if len(g.Buf()) != 30 || cap(g.Buf()) != 30 {
			t.Fatalf("a buffer of %d bytes, with room for %d", len(g.Buf()), cap(g.Buf()))
		}
		copy(g.Buf(), Data(3, 20))
		if at, _, found := g.WrittenOutside(20); found {
			t.Errorf("byte %d counts as written outside of the message", at)
		}
		g[guardLen+offset] = 0x11
		at, value, found := g.WrittenOutside(20)
		if outside := offset < 0 || offset >= 20; found != outside || found && (at != offset || value != 0x11) {
			t.Errorf("byte %d written: found %v, at %d with %#x", offset, found, at, value)
		}
	}
}
