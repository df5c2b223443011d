package scenarios

import (
	"reflect"
	"time"
)

// Expect is what must come of it. What is left out is not looked at, except
// that nothing may arrive damaged and no program may fail.
type Expect struct {
	// Delivered is exactly-once (if left out, on reliable services),
	// at-most-once, or any.
	Delivered string `yaml:"delivered,omitempty" enum:"exactly-once at-most-once any"`
	// Memory is identical (if left out): all memory that was written holds what the
	// requests in order make; or any.
	Memory string `yaml:"memory,omitempty" enum:"identical any"`
	// Errors are the completion errors that must occur, by host pattern: {host0:
	// [retry exceeded]}. No others may, but for allowed_errors. Requests that are
	// flushed because of one of them, at either end, need not be named.
	Errors map[string][]string `yaml:"errors,omitempty"`
	// AllowedErrors are completion errors that may occur and need not, by host
	// pattern; with or without errors, no others may.
	AllowedErrors map[string][]string `yaml:"allowed_errors,omitempty"`
	// Killed are the hosts that do not live to the end.
	Killed []string `yaml:"killed,omitempty"`
	// Violations counts what was broken of the promises above, as the programs
	// found; 0 if left out. A scenario with a quirk that must be caught asks for
	// at least one.
	Violations Range `yaml:"violations,omitempty"`

	// Retransmits counts packets sent again, all ranks together.
	Retransmits Range `yaml:"retransmits,omitempty"`
	// Reconnects counts connections made anew.
	Reconnects Range `yaml:"reconnects,omitempty"`
	// Marked counts packets marked with congestion.
	Marked Range `yaml:"marked,omitempty"`
	// Lost counts packets lost in the fabric or damaged beyond use.
	Lost Range `yaml:"lost,omitempty"`
	// MaxTime is the longest that the workload may take.
	MaxTime time.Duration `yaml:"max_time,omitempty"`
	// MaxMemory is the most that any rank's process may have resident.
	MaxMemory Bytes `yaml:"max_memory,omitempty" range:"1048576..1099511627776"`
	// Recovery is how long after the end of each fault traffic may take to flow
	// again.
	Recovery time.Duration `yaml:"recovery,omitempty"`

	// In is what one tier expects instead, key by key: {sim: {lost: {max: 0}}}.
	In map[Tier]Expect `yaml:"in,omitempty" enum:"sim netns"`
}

// Range bounds a count on both sides.
type Range struct {
	// Min is the least; 0 if left out.
	Min *uint64 `yaml:"min,omitempty"`
	// Max is the most; without bound if left out.
	Max *uint64 `yaml:"max,omitempty"`
}

// Contains reports whether n lies within r.
func (r Range) Contains(n uint64) bool {
	return (r.Min == nil || n >= *r.Min) && (r.Max == nil || n <= *r.Max)
}

// IsZero reports that r bounds nothing.
func (r Range) IsZero() bool { return r.Min == nil && r.Max == nil }

// ExpectOn is what is expected on a tier: what In says of it, and Expect for the
// rest.
func (s *Scenario) ExpectOn(t Tier) Expect {
	e := s.Expect
	special := reflect.ValueOf(s.Expect.In[t])
	out := reflect.ValueOf(&e).Elem()
	for i := range out.NumField() {
		if f := special.Field(i); !f.IsZero() {
			out.Field(i).Set(f)
		}
	}
	e.In = nil
	return e
}

// RunsOn reports whether the scenario makes sense on a tier.
func (s *Scenario) RunsOn(t Tier) bool {
	for _, may := range s.Tiers {
		if may == t {
			return true
		}
	}
	return len(s.Tiers) == 0
}

// TimeLimit is how long the run may take before it is called hung.
func (s *Scenario) TimeLimit() time.Duration {
	if s.Limit == 0 {
		return DefaultLimit
	}
	return s.Limit
}
