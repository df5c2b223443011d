package cm

import (
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// lookedUp has A ask for a service of B, and B answer; the answer is not delivered.
func (w *world) lookedUp() (question, answer *sent) {
	must.Get(w.a.SIDRRequest(w.now, SIDRParam{ServiceID: service, Path: Path{Local: addrA, Remote: addrB}}))(w.t)
	question = w.pass(w.a, wire.AttrSIDRREQ)
	must.Do(w.t, w.b.SIDRReply(w.now, w.b.event(EventSIDRRequest).Conn, SIDRReplyParam{QPN: 0x20, QKey: 7}))
	return question, w.b.take(wire.AttrSIDRREP)
}

// A duplicate SIDR_REQ gets the same SIDR_REP again, without an event.
func TestLostSIDRREPIsRetransmitted(t *testing.T) {
	w := newWorld(t, Config{}, Config{})
	question, first := w.lookedUp()
	w.deliver(question)
	w.b.noEvent()
	again := w.pass(w.b, wire.AttrSIDRREP)
	if again.b != first.b {
		t.Error("the second answer differs from the first")
	}
	if e := w.a.event(EventSIDRReply); e.SIDRReply.QPN != 0x20 || e.SIDRReply.QKey != 7 {
		t.Errorf("the answer is %+v", e.SIDRReply)
	}
}

// A kept SIDR_REP is not used after its lifetime, after CloseListen, or for another
// host.
func TestKeptSIDRREPExpires(t *testing.T) {
	t.Run("long ago", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		question, _ := w.lookedUp()
		w.now += mono.Time(2 * time.Minute)
		w.deliver(question)
		w.b.silent()
		w.b.event(EventSIDRRequest)
	})
	t.Run("another of the same name", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		question, _ := w.lookedUp()
		question.b[15]++ // of the transaction
		w.deliver(question)
		w.b.silent()
		w.b.event(EventSIDRRequest)
	})
	t.Run("many", func(t *testing.T) {
		w := newWorld(t, Config{}, Config{})
		question, _ := w.lookedUp()
		for range maxSIDRAnswers {
			w.lookedUp()
		}
		w.deliver(question)
		w.b.silent()
		if n := len(w.b.sidrAnswers); n != maxSIDRAnswers {
			t.Errorf("%d answers are kept", n)
		}
	})
}
