package recovery

import "strings"

// abouts say what measurements are of, by what their names begin with: the longest
// that fits counts.
var abouts = []struct{ prefix, about string }{
	{"ack/turnaround", "from a request to its ACK: the way there and back, to hold the others against"},
	{"nak/generation", "from the packet behind a gap to the NAK"},
	{"nak/for-a-gap", "NAKs for a gap that four packets come behind"},
	{"nak/reaction/first", "from a NAK for the first packet of eight to that packet again"},
	{"nak/reaction/middle", "from a NAK for the fifth packet of eight to that packet again"},
	{"nak/reaction/last", "from a NAK for the last packet of eight to that packet again"},
	{"loss/timer", "the timeout that queue pairs have in what follows"},
	{"loss/first/retransmission", "from the first packet of eight, which is lost, to that packet again"},
	{"loss/middle/retransmission", "from the fifth packet of eight, which is lost, to that packet again"},
	{"loss/last/retransmission", "from the last packet of eight, which is lost, to that packet again"},
	{"loss/first/sent-again", "packets that the loss of the first of eight has sent again"},
	{"loss/middle/sent-again", "packets that the loss of the fifth of eight has sent again"},
	{"loss/last/sent-again", "packets that the loss of the last of eight has sent again"},
	{"loss/last/timeout", "the time to the last packet again, by the timeout that is set"},
	{"loss/at-", "from a packet of eight, which is lost, to that packet again"},
	{"read/first/reaction", "from the response behind the first, which is lost, to the READ for it"},
	{"read/middle/reaction", "from the response behind the fifth, which is lost, to the READ for it"},
	{"read/last/reaction", "from the response before the last, which is lost, to the READ for it"},
	{"read/first/asked-again", "responses that the READ asks for when the first was lost"},
	{"read/middle/asked-again", "responses that the READ asks for when the fifth was lost"},
	{"read/last/asked-again", "responses that the READ asks for when the last was lost"},
	{"read/at-", "from the response behind one of eight, which is lost, to the READ for it"},
	{"read/implied-nak", "from an ACK for what is behind a READ to the READ again"},
	{"timeout/code-7", "between repetitions, by a timeout of 0.5 ms"},
	{"timeout/code-10", "between repetitions, by a timeout of 4.2 ms"},
	{"timeout/code-12", "between repetitions, by a timeout of 16.8 ms"},
	{"rnr/wait/code-1", "from an RNR NAK to the request again, by 10 us"},
	{"rnr/wait/code-12", "from an RNR NAK to the request again, by 0.64 ms"},
	{"rnr/wait/code-20", "from an RNR NAK to the request again, by 10.24 ms"},
	{"rnr/wait/code-25", "from an RNR NAK to the request again, by 61.44 ms"},
	{"cnp/generation", "from a marked packet to the CNP"},
	{"cnp/for-a-mark", "CNPs for a mark by itself"},
	{"cnp/marks-apart", "between marked packets that come densely"},
	{"cnp/for-500-marks", "CNPs for 500 packets that are all marked"},
	{"cnp/apart", "between the CNPs for these"},
	{"cnp/two-qps-of-a-peer", "CNPs for two queue pairs of one peer, marked at the same time"},
	{"cnp/qp-of-another-peer", "CNPs for one of another peer at that time"},
	{"rate/burst/before", "for 60 packets, before any CNP"},
	{"rate/burst/behind-a-cnp", "for 60 packets, behind a CNP"},
	{"rate/burst/behind-ten", "for 60 packets, behind ten CNPs"},
	{"rate/comes-back", "from the tenth CNP until 60 packets take hardly longer than before"},
}

// About says what a measurement is of, in words.
func (m *Measurement) About() (about string) {
	longest := 0
	for _, a := range abouts {
		if len(a.prefix) > longest && strings.HasPrefix(m.Name, a.prefix) {
			about, longest = a.about, len(a.prefix)
		}
	}
	return about
}
