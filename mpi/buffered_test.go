package mpi

import (
	"testing"
)

func TestAttachedBufferReusesFreedSpace(t *testing.T) {
	a := &attachedBuffer{present: true, buf: make([]byte, 100)}
	one, two, three := a.alloc(40), a.alloc(30), a.alloc(30)
	if one.offset != 0 || two.offset != 40 || three.offset != 70 || a.alloc(1) != nil {
		t.Fatalf("placed at %d, %d, %d", one.offset, two.offset, three.offset)
	}
	a.messages = []*bufferedMessage{one, three}
	if a.alloc(31) != nil {
		t.Error("31 bytes were placed in 30 free ones")
	}
	if p := a.alloc(20); p == nil || p.offset != 40 {
		t.Errorf("placed %+v", p)
	}
	if p := a.alloc(10); p == nil || p.offset != 60 || len(a.messages) != 4 {
		t.Errorf("placed %+v", p)
	}
}
