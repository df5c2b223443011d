package tcplink

import (
	"net/netip"
	"runtime"
	"testing"
)

// A stream orders memory accesses: the race detector does not report a write before a call
// of one end and a read after the other end has seen its effect.
func TestStreamOrdersMemoryAccesses(t *testing.T) {
	write := func(sizes ...int) func(*Stream) error {
		var bufs [][]byte
		for _, n := range sizes {
			bufs = append(bufs, make([]byte, n))
		}
		return func(s *Stream) error {
			_, err := s.Writev(0, bufs, false)
			return err
		}
	}
	for name, act := range map[string]func(*Stream) error{
		"short write":  write(100),
		"long write":   write(rawWriteBytes + 1),
		"short vector": write(100, 100),
		"long vector":  write(rawWriteBytes, 100),
		"end":          func(s *Stream) error { return s.CloseWrite(0) },
		"reset":        func(s *Stream) error { return s.Abort(0) },
	} {
		t.Run(name, func(t *testing.T) {
			dialed, accepted := connectStreams(t, openNet(t, Config{}), openNet(t, Config{}), 1)
			in := make([]byte, 1<<16)
			ordered(t, func() error { return act(dialed[0]) }, func() bool {
				k, err := accepted[0].Read(0, in)
				return k > 0 || err != nil
			})
		})
	}
	t.Run("connect", func(t *testing.T) {
		a, b := openNet(t, Config{}), openNet(t, Config{})
		l := listenOn(t, b, families[0].addr)
		ordered(t, func() error {
			_, err := a.Dial(1, netip.AddrPort{}, l.Addr())
			return err
		}, func() bool {
			s, err := l.Accept(1)
			return s != nil || err != nil
		})
	})
}

// ordered writes memory and acts in one goroutine, and reads it in another that has seen the
// effect. Nothing but the stream may order the two, also not t.Helper.
func ordered(t *testing.T, act func() error, noticed func() bool) {
	before, errs := 0, make(chan error, 1)
	go func() {
		before = 1
		errs <- act()
	}()
	for !noticed() {
		runtime.Gosched()
	}
	if before != 1 {
		t.Error("the effect came before the cause")
	}
	if err := <-errs; err != nil {
		t.Error(err)
	}
}
