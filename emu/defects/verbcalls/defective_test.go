package verbcalls

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// defectTalk is a talk that tells a defective device from a sound one.
type defectTalk struct {
	talk             func(*talk)
	sound, defective string
}

// defectTalks has one for every defect, by its name.
var defectTalks = func() map[string]defectTalk {
	all := map[string]defectTalk{}
	for _, some := range []map[string]defectTalk{
		deviceTalks, lifeTalks, memoryTalks, queueTalks, pairTalks, requestTalks, completionTalks, sharedTalks, managerTalks, driverTalks,
	} {
		maps.Copy(all, some)
	}
	return all
}()

func TestDefectsMisbehaveAsDocumented(t *testing.T) {
	var names []string
	for _, info := range AllDefects() {
		names = append(names, info.Name)
		c, ok := defectTalks[info.Name]
		if !ok || c.sound == c.defective {
			t.Errorf("no talk tells %s from a sound device", info.Name)
			continue
		}
		t.Run(info.Name, func(t *testing.T) {
			var q Defects
			if got := play(t, q, c.talk); got != c.sound {
				t.Errorf("sound:\n\t%s, want\n\t%s", got, c.sound)
			}
			spec := strings.Replace(info.Name, "=NAME", "=sent_pkts", 1)
			if err := q.Set(spec, true); err != nil || !slices.Equal(q.Names(), []string{spec}) {
				t.Fatalf("%v, on are %q", err, q.Names())
			}
			if got := play(t, q, c.talk); got != c.defective {
				t.Errorf("defective:\n\t%s, want\n\t%s", got, c.defective)
			}
			if err := q.Set(spec, false); err != nil || q != (Defects{}) {
				t.Errorf("%v, on are still %q", err, q.Names())
			}
		})
	}
	for name := range defectTalks {
		if !slices.Contains(names, name) {
			t.Errorf("there is a talk for %s, but no such defect", name)
		}
	}
}

// SparseCompletions leaves out more than one talk shows, and no more than it says.
func TestWhatIsLeftOut(t *testing.T) {
	for _, c := range []struct{ from, to verbs.WC }{
		{verbs.WC{WRID: 1, ByteLen: 8, QPN: 2, SrcQP: 3, Opcode: verbs.WCOpRecv}, verbs.WC{WRID: 1, ByteLen: 8, QPN: 2, SrcQP: 3, Opcode: verbs.WCOpRecv}},
		{verbs.WC{SrcQP: 3, ByteLen: 48, Flags: verbs.WCWithGRH | verbs.WCWithImm, Imm: 4}, verbs.WC{ByteLen: 48, Flags: verbs.WCWithGRH | verbs.WCWithImm, Imm: 4}},
		{verbs.WC{Flags: verbs.WCWithInv, InvalidatedRKey: 5, SrcQP: 3}, verbs.WC{SrcQP: 3}},
	} {
		if empty(&c.from); c.from != c.to {
			t.Errorf("%+v, want %+v", c.from, c.to)
		}
	}
}

// A device whose defects concern something else is as good as a sound one: handles
// that it makes are those that it takes, and tells of.
func TestHandlesAreTheProgramsOwn(t *testing.T) {
	got := play(t, Defects{LimitsOverstated: true}, func(c *talk) {
		c.connect()
		must.Do(c, c.dev.cq.ReqNotify(false))
		c.dev.post(c.dev.wr(1, verbs.OpRDMAWrite))
		cq, err := c.dev.ch.Wait(verbs.Forever)
		if err != nil || cq != c.dev.cq {
			t.Errorf("event of %v, %v", cq, err)
		}
		c.dev.done()
		bad := c.peer.wr(2, verbs.OpRDMAWrite)
		bad.Remote.RKey++
		c.peer.post(bad)
		e, err := c.dev.d.WaitAsync(verbs.Forever)
		for err == nil && e.Type != verbs.EventQPAccessErr {
			e, err = c.dev.d.WaitAsync(verbs.Forever)
		}
		if err != nil || e.QP != c.dev.qp || e.CQ != nil || e.SRQ != nil {
			t.Errorf("%+v, %v", e, err)
		}
		must.Fail(t, "Wait", must.Err(c.dev.ch.Wait(0)), verbs.ErrTimeout)
		d := c.dev.d.(*device)
		must.Do(c, c.dev.qp.Close())
		must.Do(c, c.dev.cq.Close())
		if len(d.defective) != 0 {
			t.Errorf("closed handles are remembered: %v", d.defective)
		}
	})
	if got != "1 SUCCESS 0B" {
		t.Error(got)
	}
}

// The connection manager connects what the defective device made, and QueryStale knows
// what it has set.
func TestConnecting(t *testing.T) {
	play(t, Defects{QueryStale: true}, func(c *talk) {
		m := must.Get(c.dev.d.CM())(c)
		l := must.Get(m.Listen(netip.AddrPortFrom(c.dev.addr, 9), verbs.PortSpaceTCP, 1))(c)
		c.proc.World().Go("peer", func(*sim.Proc) error {
			pm := must.Get(c.peer.d.CM())(c)
			_, err := pm.Connect(c.peer.qp, netip.AddrPortFrom(c.dev.addr, 9), verbs.ConnParam{RetryCount: 7}, verbs.Forever)
			return err
		})
		req := must.Get(l.GetRequest(verbs.Forever))(c)
		must.Get(req.Accept(c.dev.qp, verbs.ConnParam{}, verbs.Forever))(t)
		if a, err := c.dev.qp.Query(); err != nil || a.State != verbs.QPStateRTS {
			t.Errorf("%v, %v", a.State, err)
		}
	})
}

func TestNoDefectsNoDecoration(t *testing.T) {
	var d verbs.Context = &device{}
	if Device(d, Defects{}, nil) != d {
		t.Error("a sound device is decorated")
	}
}
