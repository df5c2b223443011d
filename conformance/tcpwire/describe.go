package tcpwire

import "fmt"

// Describe formats the TCP segment of an IP packet, and returns its payload; false if the
// packet has none.
func Describe(packet []byte) (text string, payload []byte, ok bool) {
	s, err := parse(packet)
	if err != nil {
		return "", nil, false
	}
	for _, f := range []struct {
		flag flags
		name string
	}{{syn, "SYN "}, {fin, "FIN "}, {rst, "RST "}} {
		if s.flags&f.flag != 0 {
			text += f.name
		}
	}
	text += fmt.Sprintf("seq %d", s.seq)
	if s.flags&ack != 0 {
		text += fmt.Sprintf(" ack %d", s.ack)
	}
	if s.mss != 0 {
		text += fmt.Sprintf(" mss %d", s.mss)
	}
	if s.window == 0 && s.flags&rst == 0 {
		text += " no window"
	}
	return text, s.payload, true
}
