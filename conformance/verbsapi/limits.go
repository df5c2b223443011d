package verbsapi

import (
	"fmt"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/conformance/rig"
	"github.com/fabrictest/fabrictest/verbs"
)

var limitCases = []conformance.Case{
	asManyAsClaimedCase("queue-pairs", 0,
		func(a *verbs.DeviceAttr) int { return a.MaxQP },
		func(r *rig.Rig) func() error {
			init := verbs.QPInit{
				Type: defaultQPType(r), PD: r.PD, SendCQ: r.CQ, RecvCQ: r.CQ,
				Caps: verbs.QPCaps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
			}
			return func() error { _, err := r.Device.CreateQP(init); return err }
		}),
	asManyAsClaimedCase("address-handles", verbs.CapUD,
		func(a *verbs.DeviceAttr) int { return a.MaxAH },
		func(r *rig.Rig) func() error {
			path := r.PathTo(r)
			return func() error { _, err := r.PD.CreateAH(path); return err }
		}),
}

// maxObjects is how many objects of a kind are created at most, to save memory.
const maxObjects = 1 << 17

// asManyAsClaimedCase returns the case that a device creates as many objects of a kind as
// it claims. maker returns a function that creates one.
func asManyAsClaimedCase(kind string, needs verbs.Caps, limit func(*verbs.DeviceAttr) int, maker func(*rig.Rig) func() error) conformance.Case {
	return conformance.Case{
		ID:    "verbs/device/as-many-" + kind + "-as-claimed",
		Title: "A device makes as many " + withSpaces(kind) + " as it claims",
		// The manual page calls the numbers upper limits, which a lack of memory may
		// prevent. An idle device has enough memory.
		Cite: manual("ibv_query_device(3)", "verbs/device/4"), Level: conformance.Should, Needs: needs,
		Labels:  []string{conformance.Slow},
		Sends:   "nothing",
		Expects: "as many as claimed",
		Defects: []string{"LimitsOverstated"},
		Run: rig.Body(func(r *rig.Rig) {
			attr := r.QueryDevice()
			n := limit(&attr)
			if n > maxObjects {
				rig.Abort(fmt.Errorf("the device claims %d %s, and at most %d are tried: %w", n, withSpaces(kind), maxObjects, conformance.ErrBenchCannot))
			}
			another := maker(r)
			for i := range n {
				r.Must(fmt.Sprintf("number %d of %d %s", i+1, n, withSpaces(kind)), another())
			}
		}),
	}
}
