package mpi

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
)

func TestBsendUsesAttachedBuffer(t *testing.T) {
	inAllConfigurations(t, 2, func(w *World) error {
		if w.Rank() == 1 {
			must.Get(w.Recv(nil, 0, 9))(t)
			for _, tag := range []int{1, 3, 4} {
				buf := make([]byte, 600)
				st, err := w.Recv(buf, 0, tag)
				must.Do(t, errors.Join(err, checkMessage(buf, st, Status{0, tag, 600, false}, tag)))
			}
			return nil
		}
		big := testMessage(1, 600)
		if err := w.Bsend(big, 1, 1); !errors.Is(err, ErrBuffer) {
			return fmt.Errorf("Bsend without a buffer: %v", err)
		}
		if err := w.DetachBuffer(); !errors.Is(err, ErrBuffer) {
			return fmt.Errorf("DetachBuffer without a buffer: %v", err)
		}
		must.Do(t, w.AttachBuffer(1000))
		if err := w.AttachBuffer(1000); !errors.Is(err, ErrBuffer) {
			return fmt.Errorf("second AttachBuffer: %v", err)
		}
		if err := w.Bsend(big, 1, 1); err != nil { // no receive is posted
			return err
		}
		clear(big) // Bsend has copied it
		if err := w.Bsend(big, 1, 2); !errors.Is(err, ErrBuffer) {
			return fmt.Errorf("Bsend to a full buffer: %v", err)
		}
		must.Do(t, w.Send(nil, 1, 9))
		if err := w.DetachBuffer(); err != nil { // waits
			return err
		}
		must.Do(t, w.AttachBuffer(600))
		must.Do(t, w.Bsend(testMessage(3, 600), 1, 3))
		for { // until earlier sends have freed their space
			err := w.Bsend(testMessage(4, 600), 1, 4) // leaves before the rank does
			if !errors.Is(err, ErrBuffer) {
				return err
			}
			w.Compute(time.Microsecond)
		}
	})
}

func TestAttachedBufferReusesFreedSpace(t *testing.T) {
	a := &attachedBuffer{present: true, buf: make([]byte, 100)}
	one, two, three := a.alloc(40), a.alloc(30), a.alloc(30)
	if one.offset != 0 || two.offset != 40 || three.offset != 70 || a.alloc(1) != nil {
		t.Fatalf("placed at %d, %d, %d", one.offset, two.offset, three.offset)
	}
	a.messages = []*bufferedMessage{one, three}
	if a.alloc(31) != nil {
		t.Error("31 bytes fit in 30")
	}
	if p := a.alloc(20); p == nil || p.offset != 40 {
		t.Errorf("placed %+v", p)
	}
	if p := a.alloc(10); p == nil || p.offset != 60 || len(a.messages) != 4 {
		t.Errorf("placed %+v", p)
	}
}
