package memory

import "time"

// Costs is the CPU time of memory operations in virtual time. The methods of a nil *Costs do
// nothing: in real time the operations take the time that they take.
type Costs struct {
	// Copy, Register and Deregister are the times for n bytes.
	Copy, Register, Deregister func(n int) time.Duration
	// LookUp is the time of one lookup in a table of buffers.
	LookUp time.Duration
	// Spend advances the virtual time of the caller.
	Spend func(time.Duration)
}

// ChargeCopy lets the time of a copy pass.
func (c *Costs) ChargeCopy(n int) {
	if c != nil && n > 0 {
		c.Spend(c.Copy(n))
	}
}

func (c *Costs) chargeRegister(n int) {
	if c != nil {
		c.Spend(c.Register(n))
	}
}

func (c *Costs) chargeDeregister(n int) {
	if c != nil {
		c.Spend(c.Deregister(n))
	}
}

func (c *Costs) chargeLookups(n uint64) {
	if c != nil {
		c.Spend(c.LookUp * time.Duration(n))
	}
}
