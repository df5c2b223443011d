package iwarp

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
)

// Documents state these sizes: a change must be deliberate.
func TestStructSizes(t *testing.T) {
	for name, c := range map[string]struct{ got, want uintptr }{
		"Stream":          {unsafe.Sizeof(Stream{}), 160},
		"read of a peer":  {unsafe.Sizeof(peerRequest{}), 112},
		"Request":         {unsafe.Sizeof(Request{}), 208},
		"control message": {unsafe.Sizeof(partials{}), 288},
	} {
		if c.got != c.want {
			t.Errorf("%s has %d bytes, not %d", name, c.got, c.want)
		}
	}
}

func TestIdleStreamsAllocateNothing(t *testing.T) {
	const n = 10000
	s := newSide(t, depth, Policy{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	streams := make([]Stream, n)
	for i := range streams {
		streams[i].Open(&s.ep, s, Options{IRD: 128, ORD: 128})
		g := untagged(wire.OpSend, 1, 0, nil, true)
		s.recv(1)
		streams[i].Input(g.Append(nil))
	}
	s.received, s.recvs = nil, nil
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / n
	t.Logf("%d bytes per stream after one message", each)
	if each > int64(unsafe.Sizeof(Stream{}))+16 {
		t.Errorf("a stream without reads has %d bytes", each)
	}
	runtime.KeepAlive(streams)
}
