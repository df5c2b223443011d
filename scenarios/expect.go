package scenarios

import (
	"reflect"
	"time"
)

// Expect is the expected result. An omitted key is not checked, except that corrupted data
// and failing programs are never accepted.
type Expect struct {
	// Delivered is exactly-once (if left out, on reliable services), at-most-once, or any.
	Delivered string `yaml:"delivered,omitempty" enum:"exactly-once at-most-once any"`
	// Memory is identical (if left out): all written memory has the contents that the
	// requests in order produce; or any.
	Memory string `yaml:"memory,omitempty" enum:"identical any"`
	// Errors are the completion errors that must occur, by host pattern: {host0: [retry
	// exceeded]}. No others may, but for allowed_errors. Requests that are flushed because
	// of one of them, at either end, need not be listed.
	Errors map[string][]string `yaml:"errors,omitempty"`
	// AllowedErrors are completion errors that may occur, by host pattern; with or without
	// errors, no others may.
	AllowedErrors map[string][]string `yaml:"allowed_errors,omitempty"`
	// Killed are the hosts that are killed before the end.
	Killed []string `yaml:"killed,omitempty"`
	// Violations counts broken guarantees that the programs detect; 0 if left out. A
	// scenario with a defect that must be caught expects at least one.
	Violations Range `yaml:"violations,omitempty"`

	// Retransmits counts retransmitted packets of all ranks.
	Retransmits Range `yaml:"retransmits,omitempty"`
	// Reconnects counts reconnections.
	Reconnects Range `yaml:"reconnects,omitempty"`
	// Marked counts packets with a CE mark.
	Marked Range `yaml:"marked,omitempty"`
	// Lost counts packets lost in the fabric or corrupted.
	Lost Range `yaml:"lost,omitempty"`
	// MaxTime is the longest time that the workload may take.
	MaxTime time.Duration `yaml:"max_time,omitempty"`
	// MaxMemory is the largest resident memory of any rank's process.
	MaxMemory Bytes `yaml:"max_memory,omitempty" range:"1048576..1099511627776"`
	// Recovery is how long traffic may take to resume after the end of each fault.
	Recovery time.Duration `yaml:"recovery,omitempty"`

	// In are exceptions for one tier, key by key: {sim: {lost: {max: 0}}}.
	In map[Tier]Expect `yaml:"in,omitempty" enum:"sim netns"`
}

// Range limits a count.
type Range struct {
	// Min is the smallest count; 0 if left out.
	Min *uint64 `yaml:"min,omitempty"`
	// Max is the largest count; unlimited if left out.
	Max *uint64 `yaml:"max,omitempty"`
}

// Contains reports whether n is within r.
func (r Range) Contains(n uint64) bool {
	return (r.Min == nil || n >= *r.Min) && (r.Max == nil || n <= *r.Max)
}

// IsZero reports whether r has no limit.
func (r Range) IsZero() bool { return r.Min == nil && r.Max == nil }

// ExpectOn returns the expectations on a tier: Expect with the exceptions of In.
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

// RunsOn reports whether the scenario runs on a tier.
func (s *Scenario) RunsOn(t Tier) bool {
	for _, may := range s.Tiers {
		if may == t {
			return true
		}
	}
	return len(s.Tiers) == 0
}

// TimeLimit is how long the run may take before it fails as hung.
func (s *Scenario) TimeLimit() time.Duration {
	if s.Limit == 0 {
		return DefaultLimit
	}
	return s.Limit
}
