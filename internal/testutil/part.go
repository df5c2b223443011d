// Package testutil has helpers for the tests of several packages: hosts in network namespaces
// ([HostPair], [NamespaceMain]), a verbs device with defects ([FaultyDevice]), goldens and
// schemas of documents ([Golden], [Document]), parts of a large product of configurations
// ([PartFlag]), the number of parallel tests ([SetParallel]) and a PATH of selected programs
// ([PathWith]). Package must checks the errors of calls.
package testutil

import (
	"flag"
	"fmt"
)

// Part is the set of configurations to run; without -part it contains all.
type Part struct{ number, of int }

// PartFlag defines the flag -part.
func PartFlag() *Part {
	p := new(Part)
	flag.Var(p, "part", "run part `I/N` of the configurations: number I, I+N, I+2N, and so on, counted from 0")
	return p
}

// Given reports whether the flag was set.
func (p *Part) Given() bool { return p.of > 0 }

// Has reports whether the part contains a configuration.
func (p *Part) Has(number int) bool { return p.of == 0 || number%p.of == p.number }

// Set implements flag.Value.
func (p *Part) Set(text string) error {
	var number, of int
	var rest string
	if n, _ := fmt.Sscanf(text, "%d/%d%s", &number, &of, &rest); n != 2 || of < 1 || number < 0 || number >= of {
		return fmt.Errorf("want I/N with 0 <= I < N, as in 7/61")
	}
	*p = Part{number, of}
	return nil
}

// String implements flag.Value.
func (p *Part) String() string {
	if p.of == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.number, p.of)
}
