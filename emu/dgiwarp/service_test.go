package dgiwarp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// number makes a message that says which it is: n, and bytes that follow from it.
func number(b []byte, n uint32) {
	binary.BigEndian.PutUint32(b, n)
	for i := 4; i < len(b); i++ {
		b[i] = byte(uint32(i)*7 + n)
	}
}

// numbered reads such a message.
func numbered(b []byte) (uint32, error) {
	if len(b) < 4 {
		return 0, fmt.Errorf("message of %d bytes", len(b))
	}
	n := binary.BigEndian.Uint32(b)
	want := make([]byte, len(b))
	number(want, n)
	if !bytes.Equal(b, want) {
		return n, fmt.Errorf("message %d was changed on the way", n)
	}
	return n, nil
}

// Both services may share a device, and do not hear each other.
func TestBothServicesOnOneDevice(t *testing.T) {
	w, a, b := pairInWorld(t, 3, impair.Config{})
	var cs []exchange
	for _, opt := range []QPOptions{unreliable, reliable} {
		c := exchange{newEnd(t, a, opt), newEnd(t, b, opt), 20}
		cs = append(cs, c)
		if overRD(c.client.QP) != opt.Reliable || c.client.QP.Type() != verbs.QPTypeUD {
			t.Errorf("%+v: reliable %v, type %v", opt, overRD(c.client.QP), c.client.QP.Type())
		}
		c.inWorld(w)
	}
	must.Do(t, w.RunPrograms())
	w.Go("stranger", func(*sim.Proc) error {
		cs[0].client.send(cs[1].server.where(), 0, 10)
		cs[0].client.Succeed()
		cs[0].client.quiet(time.Millisecond)
		return nil
	})
	must.Do(t, w.RunPrograms())
	if n := counter(b, "drop_service"); n != 1 {
		t.Errorf("%d packets of UD for a queue pair of RD", n)
	}
}

// overRD reports whether a queue pair is one of RD, which verbs cannot tell.
func overRD(qp verbs.QP) bool {
	q, ok := qp.(*queuePair)
	return ok && q.q.Reliable()
}
