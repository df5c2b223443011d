package tcpwire

import "fmt"

// Tell says in a few words what an IP packet with a TCP segment is, and returns the octets
// that it carries; false if it is none.
func Tell(packet []byte) (words string, payload []byte, ok bool) {
	s, err := parse(packet)
	if err != nil {
		return "", nil, false
	}
	for _, f := range []struct {
		flag flags
		name string
	}{{syn, "SYN "}, {fin, "FIN "}, {rst, "RST "}} {
		if s.flags&f.flag != 0 {
			words += f.name
		}
	}
	words += fmt.Sprintf("seq %d", s.seq)
	if s.flags&ack != 0 {
		words += fmt.Sprintf(" ack %d", s.ack)
	}
	if s.mss != 0 {
		words += fmt.Sprintf(" mss %d", s.mss)
	}
	if s.window == 0 && s.flags&rst == 0 {
		words += " no window"
	}
	return words, s.payload, true
}
