package fuzz_test

import "time"

// program is what a fuzzer decides: it is read octet by octet, and all zeros when
// it is used up, which everywhere means that nothing special happens.
type program struct{ b []byte }

// maxProgram bounds an execution. What can be broken can be with less.
const maxProgram = 1 << 10

func newProgram(b []byte) *program { return &program{b[:min(len(b), maxProgram)]} }

func (p *program) ended() bool { return len(p.b) == 0 }

func (p *program) octet() (v byte) {
	if len(p.b) > 0 {
		v, p.b = p.b[0], p.b[1:]
	}
	return v
}

func (p *program) word() int { return int(p.octet())<<8 | int(p.octet()) }

// take returns up to n octets.
func (p *program) take(n int) []byte {
	n = min(n, len(p.b))
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

// pause is a time between 1 µs and half a second, the short ones as likely as the
// long ones.
func (p *program) pause() time.Duration {
	v := p.octet()
	return time.Microsecond * time.Duration(16+v&15) << (v >> 4) / 16
}
