package memory

import "time"

// charge lets the CPU time d of an operation pass in virtual time. In real time, where
// Config.Costs is nil, all costs are 0 and it does nothing.
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

// chargeLookups lets the time of n lookups in a table pass.
func (r *Registry) chargeLookups(n uint64) { r.charge(r.costs.LookUp * time.Duration(n)) }
