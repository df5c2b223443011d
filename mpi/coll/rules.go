package coll

import (
	"cmp"
	"fmt"
	"slices"
)

// Rule chooses the algorithm of an operation by the size of its call. It applies to communicators with a
// number of ranks, and to calls whose blocks have the same size.
type Rule struct {
	// Operation is the name of an operation.
	Operation string `json:"operation" yaml:"operation"`
	// Ranks is the number of ranks of the communicator.
	Ranks int `json:"ranks" yaml:"ranks"`
	// PerHost is the largest number of its ranks on one host; 0 stands for any.
	PerHost int `json:"per_host,omitempty" yaml:"per_host,omitempty"`
	// From and To are the smallest and the largest size of a block, or of the vector, in bytes. With a To of
	// 0 there is no largest.
	From int `json:"from,omitempty" yaml:"from,omitempty"`
	To   int `json:"to,omitempty" yaml:"to,omitempty"`
	// Algorithm is the name of an algorithm of the operation.
	Algorithm string `json:"algorithm" yaml:"algorithm"`
}

// Check returns an error that names the key that is wrong.
func (r *Rule) Check() error {
	op := opNamed(r.Operation)
	switch {
	case op == NumOps:
		return fmt.Errorf("operation %q is none of %s", r.Operation, OpNames())
	case Find(op, r.Algorithm) == nil:
		return fmt.Errorf("algorithm %q of %v is none of %s", r.Algorithm, op, Names(op))
	case r.Ranks < 1:
		return fmt.Errorf("ranks: %d is less than 1", r.Ranks)
	case r.PerHost < 0:
		return fmt.Errorf("per_host: %d is less than 0", r.PerHost)
	case r.From < 0 || r.To < 0 || r.To > 0 && r.To < r.From:
		return fmt.Errorf("from %d to %d: no size is in this range", r.From, r.To)
	}
	return nil
}

// Overlaps reports whether a call can match both rules.
func (r *Rule) Overlaps(o *Rule) bool {
	same := r.Operation == o.Operation && r.Ranks == o.Ranks && (r.PerHost == o.PerHost || r.PerHost == 0 || o.PerHost == 0)
	return same && (r.To == 0 || o.From <= r.To) && (o.To == 0 || r.From <= o.To)
}

// RuleSet has the rules of a communicator.
type RuleSet [NumOps][]sizeRule

// sizeRule is a rule for sizes.
type sizeRule struct {
	from, to  int
	algorithm *Algorithm
}

// RulesFor returns those of checked rules that apply to a communicator with a number of ranks, of which at
// most perHost are on one host.
func RulesFor(all []Rule, ranks, perHost int) *RuleSet {
	s := new(RuleSet)
	for i := range all {
		r := &all[i]
		if op := opNamed(r.Operation); r.Ranks == ranks && (r.PerHost == 0 || r.PerHost == perHost) {
			s[op] = append(s[op], sizeRule{r.From, r.To, Find(op, r.Algorithm)})
		}
	}
	for _, rules := range s {
		slices.SortFunc(rules, func(a, b sizeRule) int { return cmp.Compare(a.from, b.from) })
	}
	return s
}

// Find returns the algorithm of the rule that applies to a call; nil if there is none.
func (s *RuleSet) Find(c *Call) *Algorithm {
	if s == nil || c.In != nil || c.Out != nil { // ranks may have different sizes
		return nil
	}
	rules := s[c.Op]
	i, found := slices.BinarySearchFunc(rules, c.Bytes, func(r sizeRule, n int) int { return cmp.Compare(r.from, n) })
	if !found {
		i-- // the last that begins before
	}
	if i < 0 || rules[i].to > 0 && rules[i].to < c.Bytes {
		return nil
	}
	return rules[i].algorithm
}
