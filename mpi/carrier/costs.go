package carrier

import (
	"time"

	"github.com/fabrictest/fabrictest/mpi/regcache"
)

// In a simulated world work on memory takes no time, unless it is said how much. It
// passes here, and nowhere else.

// copied is the time of a copy.
func (c *Carrier) copied(n int) {
	if k := c.env.Costs; k != nil && n > 0 {
		k.Spend(k.Copy(n))
	}
}

// registers is the time of a registration, and deregisters that of its end.
func (c *Carrier) registers(n int) {
	if k := c.env.Costs; k != nil {
		k.Spend(k.Register(n))
	}
}

func (c *Carrier) deregisters(n int) {
	if k := c.env.Costs; k != nil {
		k.Spend(k.Deregister(n))
	}
}

// looks is the time of a look into the cache of registrations.
func (c *Carrier) looks() {
	if k := c.env.Costs; k != nil {
		k.Spend(k.LookUp)
	}
}

// lookUp looks a buffer up in a table of uses: for as long as it takes to go along a
// chain, if there is one.
func (c *Carrier) lookUp(t *regcache.ReuseTable, buf []byte) bool {
	uses, passed := t.Stats.Uses, t.Stats.Passed
	frequent := t.RecordUse(addressOf(buf), len(buf))
	if k := c.env.Costs; k != nil && t.Stats.Uses > uses {
		k.Spend(k.LookUp * time.Duration(1+t.Stats.Passed-passed))
	}
	return frequent
}
