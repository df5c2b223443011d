package fuzz_test

import "time"

// program is the input of a fuzzer, read octet by octet. After its end all octets are zero, which
// requests the default everywhere.
type program struct{ b []byte }

// maxProgram limits the length of an execution.
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

// pause returns a time between 1 µs and half a second, on a logarithmic scale.
func (p *program) pause() time.Duration {
	v := p.octet()
	return time.Microsecond * time.Duration(16+v&15) << (v >> 4) / 16
}
