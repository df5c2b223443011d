package iwarpwire

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/emu/defects"
	"github.com/fabrictest/fabrictest/emu/internal/nic"
	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/emu/link"
	"github.com/fabrictest/fabrictest/emu/mono"
	"github.com/fabrictest/fabrictest/emu/softiwarp/engine"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// talk is a conversation of a peer with a NIC, and what comes of it if the NIC is
// sound and if it has the defect.
type talk struct {
	say              func(*rig) string
	sound, defective string
}

// talks has one for every defect.
var talks = func() map[string]talk {
	all := map[string]talk{}
	for _, part := range []map[string]talk{frameTalks, framingTalks, terminateTalks, sendTalks, takeTalks} {
		maps.Copy(all, part)
	}
	return all
}()

// The sound NIC is behind an Edge without defects, which has to be as good as none.
func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	kind := reflect.TypeFor[Defects]()
	for i := range kind.NumField() {
		name := kind.Field(i).Name
		c, ok := talks[name]
		if !ok {
			t.Errorf("%s has no conversation that shows it", name)
			continue
		}
		if c.sound == c.defective {
			t.Errorf("%s: the conversation would not tell a defective NIC from a sound one", name)
		}
		for _, on := range []bool{false, true} {
			var q Defects
			must.Do(t, defects.Set(&q, name, on))
			want := c.sound
			if on {
				want = c.defective
			}
			if got := c.say(&rig{t: t, q: q}); got != want {
				t.Errorf("%s %v:\n\t%s\nwant:\n\t%s", name, on, got, want)
			}
		}
	}
	if len(talks) != kind.NumField() {
		t.Errorf("%d conversations for %d defects", len(talks), kind.NumField())
	}
}

// rig is a NIC behind an Edge, and the peer of its only connection.
type rig struct {
	t       *testing.T
	q       Defects
	markers bool // the NIC asks for them
	noCRC   bool // and not for CRCs

	nic    *engine.NIC
	edge   *Edge
	conn   *Conn
	engine *engine.Conn
	qp     *engine.QP
	cq     *nic.CQ
	pd     nic.PD
	mem    nic.Bytes
	region *nic.Region
	now    mono.Time
	end    link.StreamEnd

	framer   wire.Framer
	deframer *wire.Deframer
}

const access = verbs.AccessLocalWrite | verbs.AccessRemoteRead | verbs.AccessRemoteWrite | verbs.AccessRemoteAtomic

// check ends the test for what cannot happen.
func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// open makes the NIC.
func (r *rig) open() {
	cfg := engine.Config{}
	cfg.MPA.Markers, cfg.MPA.NoCRC, cfg.MPA.PeerToPeer = r.markers, r.noCRC, true
	var err error
	r.nic, err = engine.New(cfg)
	r.check(err)
	r.edge = New(r.q, r.noCRC)
	r.pd, err = r.nic.AllocPD()
	r.check(err)
	r.cq, err = r.nic.CreateCQ(64)
	r.check(err)
	r.mem = make(nic.Bytes, 8192)
	for i := range r.mem {
		r.mem[i] = byte(i)
	}
	r.region, err = r.nic.RegMR(r.pd, r.mem, 0, access)
	r.check(err)
	r.qp, err = r.nic.CreateQP(engine.QPConfig{
		Type: verbs.QPTypeRC, PD: r.pd, SendCQ: r.cq, RecvCQ: r.cq, SignalAll: true,
		Caps: verbs.QPCaps{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4},
	})
	r.check(err)
}

var ends = [2]netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")}

// request has the NIC asked, and returns what it says.
func (r *rig) request(f *wire.StartFrame, behind ...byte) []byte {
	r.incoming()
	return r.give(append(f.Append(nil), behind...))
}

// incoming is a connection that somebody else has made.
func (r *rig) incoming() {
	r.open()
	r.engine = r.nic.Incoming()
	r.conn = r.edge.Conn(r.engine, false)
	r.conn.Connected(r.now, ends[0], ends[1], 1460)
}

// accept has the NIC accept, and returns its Reply.
func (r *rig) accept(p engine.ConnParam) []byte {
	r.check(r.engine.Accept(r.now, r.qp, p))
	return r.hear()
}

// connect has the NIC ask, and returns its Request.
func (r *rig) connect(p engine.ConnParam) []byte {
	r.open()
	var err error
	r.engine, err = r.nic.Connect(r.qp, p)
	r.check(err)
	r.conn = r.edge.Conn(r.engine, true)
	r.conn.Connected(r.now, ends[0], ends[1], 1460)
	return r.hear()
}

// frames and depths that most conversations have.
func asks() *wire.StartFrame { return &wire.StartFrame{CRC: true, Revision: 1} }

func enhanced(reply bool, e wire.Enhanced) *wire.StartFrame {
	return &wire.StartFrame{Reply: reply, CRC: true, Enhanced: true, Revision: 2, PrivateData: e.Append(nil)}
}

var four = engine.ConnParam{IRD: 4, ORD: 4}

// up has a NIC that has accepted and may speak; markers says that its peer wants
// them.
func (r *rig) up(markers bool) {
	f := asks()
	f.Markers = markers
	r.request(f)
	r.start(wire.Framing{Markers: r.markers, CRC: true}, wire.Framing{Markers: markers, CRC: true})
	r.accept(four)
	r.say(segmentOf(wire.OpWrite, 0, nil))
}

// start says how the two directions are framed.
func (r *rig) start(in, out wire.Framing) {
	r.framer, r.deframer = wire.NewFramer(in), wire.NewDeframer(out)
}

// give gives the NIC octets and returns its answer.
func (r *rig) give(b []byte) []byte {
	r.conn.Input(r.now, b)
	return r.hear()
}

// hear returns what the NIC has written since.
func (r *rig) hear() (all []byte) {
	for range 1000 {
		bufs, then := r.conn.Output(make([][]byte, 0, 8))
		r.end = then
		n := 0
		for _, b := range bufs {
			all, n = append(all, b...), n+len(b)
		}
		if n == 0 || then == link.StreamAbort {
			return all
		}
		r.conn.Sent(r.now, n)
	}
	r.t.Fatal("there is no end of what is to be written")
	return nil
}

// say gives the NIC segments, and returns what it answers in words.
func (r *rig) say(gs ...wire.Segment) string {
	for _, g := range gs {
		r.conn.Input(r.now, r.framer.Append(nil, g.Append(nil)))
	}
	return r.words()
}

// words is what the NIC has written since, as its peer reads it.
func (r *rig) words() string {
	var said []string
	b := r.hear()
	for len(b) > 0 {
		f, rest, ok := r.deframer.Next(b)
		b = rest
		if !ok {
			said = append(said, "…")
			break
		}
		var g wire.Segment
		if err := g.Parse(f.ULPDU); err != nil || f.CRCStatus == wire.CRCBad {
			said = append(said, fmt.Sprint("wrong ", f.CRCStatus == wire.CRCBad))
			continue
		}
		s := fmt.Sprintf("%v %d", g.Control.Opcode, len(g.Payload))
		if t, ok := (&segment{octets: f.ULPDU}).parsed(); ok {
			s = fmt.Sprintf("Terminate %d/%d/%02x", t.Error.Layer, t.Error.Type, t.Error.Code)
		} else if !g.Control.Tagged {
			s += fmt.Sprintf(" #%d", g.Untagged.MSN)
		}
		said = append(said, s)
	}
	switch r.end {
	case link.StreamClose:
		said = append(said, "end")
	case link.StreamAbort:
		said = append(said, "reset")
	}
	return strings.Join(said, ", ")
}

// recv posts receives of 64 octets each, one behind the other from 4096 on.
func (r *rig) recv(n int) {
	for i := range n {
		r.check(r.qp.PostRecv(&verbs.RecvWR{WRID: uint64(i), SGL: []verbs.SGE{r.sge(4096+64*i, 64)}}))
	}
}

func (r *rig) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: r.region.Addr + uint64(off), Length: uint32(n), LKey: verbs.LKey(r.region.Key)}
}

// post has the NIC do something with n octets of its memory.
func (r *rig) post(op verbs.WROpcode, n int, change ...func(*verbs.SendWR)) {
	wr := verbs.SendWR{Opcode: op}
	if n > 0 {
		wr.SGL = []verbs.SGE{r.sge(0, n)}
	}
	wr.Remote = verbs.Remote{RKey: 0x1234_5600, Addr: 0x1000}
	for _, f := range change {
		f(&wr)
	}
	r.check(r.qp.PostSend(&wr, &engine.Refs{}))
}

// done is what has completed.
func (r *rig) done() string {
	var wc [16]verbs.WC
	n, err := r.cq.Poll(wc[:])
	r.check(err)
	var all []string
	for _, c := range wc[:n] {
		all = append(all, fmt.Sprintf("%d:%v:%d", c.WRID, strings.TrimPrefix(c.Status.String(), "IBV_WC_"), c.ByteLen))
	}
	return strings.Join(all, " ")
}

// wait lets time go by.
func (r *rig) wait(d time.Duration) {
	r.now = r.now.Add(d)
	r.edge.Settle(r.now)
	r.edge.Tick(r.now)
	r.nic.Tick(r.now)
}

// segmentOf is a segment of the peer's, which ends its message.
func segmentOf(op wire.Opcode, msn wire.MSN, payload []byte, change ...func(*wire.Segment)) (g wire.Segment) {
	g.Control = wire.NewControl(op, true)
	if info, ok := op.Info(); ok && !info.Tagged {
		g.Untagged = wire.Untagged{QN: info.Queue, MSN: msn}
	}
	g.Payload = slices.Clone(payload)
	for _, f := range change {
		f(&g)
	}
	return g
}

// into has a segment go to the NIC's memory.
func (r *rig) into(off int) func(*wire.Segment) {
	return func(g *wire.Segment) {
		g.Tagged = wire.Tagged{STag: wire.STag(r.region.Key), TO: r.region.Addr + uint64(off)}
	}
}

// read has a Read Request ask for the NIC's memory.
func (r *rig) read(off int, n uint32) func(*wire.Segment) {
	return func(g *wire.Segment) {
		g.ReadRequest = wire.ReadRequest{SinkSTag: 1, SinkTO: 2, Size: n, SrcSTag: wire.STag(r.region.Key), SrcTO: r.region.Addr + uint64(off)}
	}
}

func more(g *wire.Segment) { g.Control.Last = false }
