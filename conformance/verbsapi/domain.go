package verbsapi

import (
	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var domainCases = []conformance.Case{
	pdBusyCase("regions", 0, func(r *rig.Rig, pd verbs.PD) closer { return r.MemoryIn(pd, 64, 0) }),
	pdBusyCase("windows", verbs.CapMWType2, func(r *rig.Rig, pd verbs.PD) closer {
		return rig.Result(pd.AllocMW(verbs.MWType2))(r, "a window")
	}),
	pdBusyCase("queue-pairs", 0, func(r *rig.Rig, pd verbs.PD) closer {
		return r.CreateQP(verbs.QPInit{Type: rig.DefaultQPType(r), PD: pd, SendCQ: r.CQ, RecvCQ: r.CQ, Caps: smallCaps})
	}),
	pdBusyCase("shared-receive-queues", verbs.CapSRQ, func(r *rig.Rig, pd verbs.PD) closer {
		init := srqInit(r)
		init.PD = pd
		return r.CreateSRQ(init)
	}),
	pdBusyCase("address-handles", verbs.CapUD, func(r *rig.Rig, pd verbs.PD) closer {
		return rig.Result(pd.CreateAH(r.PathTo(r)))(r, "an address handle")
	}),
	{
		ID: "verbs/pd/local-key-of-another-domain", Cite: cite("ibv_alloc_pd(3)", "verbs/pd/2"),
		Title:   "A queue pair does not send from memory of another protection domain",
		Sends:   "a request whose list names a region of another domain",
		Expects: "it is refused or completes with an error, and the partner's receive is not used",
		Defects: []string{"IgnorePD"}, Run: onPair(setup{}, func(l *qpPair) {
			l.partner.postRecv(1, recvOffset, 64)
			foreign := l.dut.MemoryIn(otherPD(l.dut.Rig), 64, 0)
			l.dut.expectFailure("a send from another domain's memory", l.dut.sendOf(2, foreign.SGE(0, 16)))
			if wc, ok := l.partner.PollCompletion(shortWait); ok && wc.Status == verbs.WCSuccess {
				l.dut.Fail("nothing sent", "%s", rig.Describe(&wc))
			}
		}),
	},
}

// closer is a verbs object.
type closer interface{ Close() error }

// pdBusyCase returns the case that a protection domain cannot be freed while it has
// objects of this kind. create returns such an object.
func pdBusyCase(kind string, needs verbs.Caps, create func(*rig.Rig, verbs.PD) closer) conformance.Case {
	return conformance.Case{
		ID:    "verbs/pd/busy-with-" + kind,
		Title: "A protection domain cannot be closed while there are " + withSpaces(kind) + " in it",
		Cite:  cite("ibv_dealloc_pd(3)", "verbs/pd/1"), Needs: needs, Defects: []string{"BusyClosed"},
		Expects: "EBUSY, until the last is closed; the domain can be used meanwhile",
		Run: rig.Body(func(r *rig.Rig) {
			pd := otherPD(r)
			first, last := create(r, pd), create(r, pd)
			r.MustFail("closing a domain in use", pd.Close(), verbs.ErrBusy)
			r.Must("a region in the domain", r.MemoryIn(pd, 16, 0).Close())
			r.Must("an object of the domain that can be closed", first.Close())
			r.MustFail("closing a domain with another object", pd.Close(), verbs.ErrBusy)
			r.Must("the last object of the domain that can be closed", last.Close())
			r.Must("an empty domain that can be closed", pd.Close())
		}),
	}
}

// otherPD allocates another protection domain.
func otherPD(r *rig.Rig) verbs.PD {
	return rig.Result(r.Device.AllocPD())(r, "another protection domain")
}
