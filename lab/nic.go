package lab

import (
	"fmt"
	"time"

	"github.com/fabrictest/fabrictest/emu/softroce"
	"github.com/fabrictest/fabrictest/emu/softroce/engine"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/scenarios/workload"
)

// callsHeld is how many connections a NIC's manager keeps where they are made
// and torn down all the time: enough for those in use and in time wait, and few
// enough that one which forgets to free them is soon found out.
const callsHeld = 16

// NICConfig returns how the NICs of a host are made: what the scenario says of
// them, and quirks besides, on every host. What depends on the place (name,
// addresses, line rate) is for the caller to fill in.
func NICConfig(s *scenarios.Scenario, host string, quirks ...string) (cfg softroce.Config, err error) {
	var wrong Flaws
	flawed := len(s.NIC.On) == 0 || scenarios.MatchHost(s.NIC.On, host)
	for i, name := range s.NIC.Quirks {
		var all Flaws // a mistake shows on every host
		if err := all.Set(name); err != nil {
			return cfg, s.Errorf(fmt.Sprintf("nic.quirks[%d]", i), "%w", err)
		}
		if flawed {
			_ = wrong.Set(name)
		}
	}
	for _, name := range quirks {
		if err := wrong.Set(name); err != nil {
			return cfg, err
		}
	}
	switch s.NIC.Provider {
	case "", "softroce":
	default:
		return cfg, s.Errorf("nic.provider", "%q: there is softroce only", s.NIC.Provider)
	}
	switch s.NIC.ICRC {
	case "", "checked":
	case "offloaded":
		cfg.NIC.ICRC = engine.ICRCOffloaded
	default:
		return cfg, s.Errorf("nic.icrc", "%q is none of checked, offloaded", s.NIC.ICRC)
	}
	switch s.NIC.RateControl {
	case "", "dcqcn":
	case "off":
		ignoreMarks(&cfg.NIC)
	default:
		return cfg, s.Errorf("nic.rate_control", "%q is none of dcqcn, off", s.NIC.RateControl)
	}
	cfg.NIC.Quirks, cfg.CM.Quirks = wrong.NIC, wrong.CM
	if s.Workload.Kind == workload.Calls {
		cfg.CM.MaxConns = callsHeld
	}
	return cfg, nil
}

// ignoreMarks leaves the marks on packets and the notifications about them as
// they are, and lets no sender slow down for them: the lowest rate that control
// of congestion may choose is beyond any line's. The rest are its published
// constants, which must be sensible to be taken.
func ignoreMarks(nic *engine.Config) {
	const beyond = 10e12
	c := &nic.Congestion
	c.MinRateBps, c.MaxRateBps = beyond, beyond
	c.G = 1 << 22 // 1/256
	c.AlphaInterval, c.IncreaseInterval = 55*time.Microsecond, 55*time.Microsecond
	c.ByteCounter, c.FastRecovery = 10e6, 5
	c.RateAIBps, c.RateHAIBps = 40e6, 400e6
}
