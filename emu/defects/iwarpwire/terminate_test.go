package iwarpwire

import (
	"fmt"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// strange is a Write to memory that nobody has.
func strange() wire.Segment {
	return segmentOf(wire.OpWrite, 0, []byte("x"), func(g *wire.Segment) { g.Tagged = wire.Tagged{STag: 0x77, TO: 0x99} })
}

// complaint is the Terminate, in octets, that answers segments.
func (r *rig) complaint(gs ...wire.Segment) string {
	r.up(false)
	for _, g := range gs {
		r.conn.Input(0, r.framer.Append(nil, g.Append(nil)))
	}
	b := r.hear()
	if len(b) < 6 {
		return fmt.Sprintf("%x, %v", b, r.end)
	}
	f, _ := cut(b, 0, false)
	return fmt.Sprintf("%x", f.ulpdu()[6:])
}

// hears is what a NIC does when it is told of an error.
func (r *rig) hears(e wire.TermError, change ...func(*wire.Segment)) string {
	r.up(false)
	return r.say(segmentOf(wire.OpTerminate, 1, nil, append(change, func(g *wire.Segment) { g.Terminate.Error = e })...))
}

var terminateTalks = map[string]talk{
	"ErrorResets": {
		say: func(r *rig) string {
			r.up(false)
			s := r.say(strange()) + "; " + r.engine.State().String()
			e := agreed // and at the end of the start-up
			e.ORD = 9999
			return s + "; " + (&rig{t: r.t, q: r.q}).answered(enhanced(true, e))
		},
		sound:     "Terminate 1/1/00, end; closing; Terminate 2/0/06, end; closing",
		defective: "reset; closed; reset; closed",
	},
	"TermHeaderStale": {say: func(r *rig) string { return r.complaint(strange()) }, sound: "0000000200000001000000001100c000000fc140000000770000000000000099", defective: "0000000200000001000000001100c000000fc140000000000000000000000000"},
	"TermAllHeaders":  {say: func(r *rig) string { return r.complaint(strange()) }, sound: "0000000200000001000000001100c000000fc140000000770000000000000099", defective: "0000000200000001000000001100e000000fc14000000077000000000000009900000000000000000000000000000000000000000000000000000000"},
	"TermOtherQueue":  {say: func(r *rig) string { return r.complaint(strange())[:24] }, sound: "000000020000000100000000", defective: "000000000000000100000000"},
	"CodesShifted":    {say: func(r *rig) string { r.up(false); return r.say(strange()) }, sound: "Terminate 1/1/00, end", defective: "Terminate 1/1/01, end"},
	"MPAErrorType": {
		say: func(r *rig) string {
			e := agreed
			e.ORD = 9999
			return r.answered(enhanced(true, e))
		},
		sound: "Terminate 2/0/06, end; closing", defective: "Terminate 2/1/06, end; closing",
	},
	"TerminateAnswered": {say: func(r *rig) string { return r.hears(wire.TermProtAccess) }, sound: "end", defective: "Terminate 0/2/ff, end"},
	"StrangeTerminateIgnored": {
		say: func(r *rig) string {
			all := ""
			for _, how := range []func(*wire.Segment){
				func(*wire.Segment) {}, func(g *wire.Segment) { g.Untagged.QN = 5 }, func(g *wire.Segment) { g.Terminate.Reserved = 1 },
			} {
				all += (&rig{t: r.t, q: r.q}).hears(wire.TermProtAccess, how) + "; "
			}
			return all + (&rig{t: r.t, q: r.q}).hears(wire.TermError{Layer: 0, Type: 1, Code: 0x44})
		},
		sound: "end; end; end; end", defective: "end; ; ; ",
	},
	"LocalErrorSilent": {
		say: func(r *rig) string {
			r.up(false)
			r.post(opSend, 4, func(wr *verbs.SendWR) { wr.SGL[0].LKey++ })
			return r.words() + "; " + r.done()
		},
		sound: "Terminate 0/0/00, end; 0:LOC_PROT_ERR:0", defective: "end; 0:LOC_PROT_ERR:0",
	},
}
