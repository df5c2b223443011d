package carrier

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/regcache"
)

// A simulated world has no cost of memory operations, unless env.Costs gives one. These
// functions let that time pass.

// chargeCopy lets the time of a copy pass.
func (c *Carrier) chargeCopy(n int) {
	if k := c.env.Costs; k != nil && n > 0 {
		k.Spend(k.Copy(n))
	}
}

// chargeRegister and chargeDeregister let the time of a registration or deregistration
// pass.
func (c *Carrier) chargeRegister(n int) {
	if k := c.env.Costs; k != nil {
		k.Spend(k.Register(n))
	}
}

func (c *Carrier) chargeDeregister(n int) {
	if k := c.env.Costs; k != nil {
		k.Spend(k.Deregister(n))
	}
}

// chargeLookup lets the time of a registration cache lookup pass.
func (c *Carrier) chargeLookup() {
	if k := c.env.Costs; k != nil {
		k.Spend(k.LookUp)
	}
}

// recordUse counts a use of a buffer and reports whether it is frequent. The time that
// passes grows with the hash chain.
func (c *Carrier) recordUse(t *regcache.ReuseTable, buf []byte) bool {
	uses, passed := t.Stats.Uses, t.Stats.Passed
	frequent := t.RecordUse(addressOf(buf), len(buf))
	if k := c.env.Costs; k != nil && t.Stats.Uses > uses {
		k.Spend(k.LookUp * time.Duration(1+t.Stats.Passed-passed))
	}
	return frequent
}
