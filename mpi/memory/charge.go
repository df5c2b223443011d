package memory

import "time"

// charge advances the virtual time by d, the CPU time of an operation. In real time, where
// Config.Costs is nil, all costs are 0 and it does nothing.
func (r *Registry) charge(d time.Duration) {
	if d > 0 {
		r.cfg.Spend(d)
	}
}

// ChargeCopy advances the virtual time by the CPU time of a copy of n bytes.
func (r *Registry) ChargeCopy(n int) {
	if n > 0 {
		r.charge(r.costs.Copy.Of(n))
	}
}

// chargeLookups advances the virtual time by the CPU time of n table lookups.
func (r *Registry) chargeLookups(n uint64) { r.charge(r.costs.LookUp * time.Duration(n)) }
