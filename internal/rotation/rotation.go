// Package rotation is for tests over a product of configurations that is too large for
// every run. With the flag -part 7/61 such a test takes every 61st configuration, beginning
// with number 7, so that 61 runs with different parts take all of them. The number of parts
// should be prime, so that a part does not meet the same values of a parameter only.
package rotation

import (
	"flag"
	"fmt"
)

// Part is one part of a product; without -part it is all of it.
type Part struct{ number, of int }

// Flag defines the flag -part.
func Flag() *Part {
	p := new(Part)
	flag.Var(p, "part", "take every Nth configuration, beginning with number `I/N`")
	return p
}

// Given reports whether the flag was given.
func (p *Part) Given() bool { return p.of > 0 }

// Has reports whether a configuration belongs to the part.
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
