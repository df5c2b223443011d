// Package rotation splits a large product of test configurations over several runs. With
// the flag -part 7/61, a test runs every 61st configuration, starting with number 7; 61
// runs cover all. The number of parts should be prime, so that every part contains all
// values of each parameter.
package rotation

import (
	"flag"
	"fmt"
)

// Part is the set of configurations to run; without -part it contains all.
type Part struct{ number, of int }

// Flag defines the flag -part.
func Flag() *Part {
	p := new(Part)
	flag.Var(p, "part", "take every Nth configuration, beginning with number `I/N`")
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
