package memory

import "time"

// charge lets the CPU time of an operation pass in virtual time. It does nothing in real
// time, where Config.Costs is nil.
func (r *Registry) charge(d time.Duration) {
	if d > 0 {
		r.cfg.Spend(d)
	}
}

// ChargeCopy lets the time of a copy of n bytes pass.
func (r *Registry) ChargeCopy(n int) {
	if n > 0 {
		r.charge(r.costs.Copy.Of(n))
	}
}

// chargeLookups lets the time of n lookups pass.
func (r *Registry) chargeLookups(n uint64) { r.charge(r.costs.LookUp * time.Duration(n)) }
