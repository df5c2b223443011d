package roce

import "strings"

// descriptions explain measurements. The entry with the longest prefix of a measurement's
// name applies.
var descriptions = []struct{ prefix, about string }{
	{"ack/turnaround", "from a request to its ACK: the round-trip time, for comparison with the others"},
	{"nak/generation", "from the packet after a gap to the NAK"},
	{"nak/for-a-gap", "NAKs for a gap followed by four packets"},
	{"nak/reaction/first", "from a NAK for the first packet of eight to its retransmission"},
	{"nak/reaction/middle", "from a NAK for the fifth packet of eight to its retransmission"},
	{"nak/reaction/last", "from a NAK for the last packet of eight to its retransmission"},
	{"loss/timer", "the local ACK timeout in the following measurements"},
	{"loss/first/retransmission", "from the first packet of eight, which is lost, to its retransmission"},
	{"loss/middle/retransmission", "from the fifth packet of eight, which is lost, to its retransmission"},
	{"loss/last/retransmission", "from the last packet of eight, which is lost, to its retransmission"},
	{"loss/first/sent-again", "packets retransmitted after the loss of the first of eight"},
	{"loss/middle/sent-again", "packets retransmitted after the loss of the fifth of eight"},
	{"loss/last/sent-again", "packets retransmitted after the loss of the last of eight"},
	{"loss/last/timeout", "the time to the retransmission of the last packet, in timeouts"},
	{"loss/at-", "from a packet of eight, which is lost, to its retransmission"},
	{"read/first/reaction", "from the response after the first, which is lost, to the new READ request"},
	{"read/middle/reaction", "from the response after the fifth, which is lost, to the new READ request"},
	{"read/last/reaction", "from the response before the last, which is lost, to the new READ request"},
	{"read/first/asked-again", "responses requested again when the first was lost"},
	{"read/middle/asked-again", "responses requested again when the fifth was lost"},
	{"read/last/asked-again", "responses requested again when the last was lost"},
	{"read/at-", "from the response after one of eight, which is lost, to the new READ request"},
	{"read/implied-nak", "from an ACK of a request after a READ to the retransmitted READ"},
	{"timeout/code-7", "between retransmissions, with a timeout of 0.5 ms"},
	{"timeout/code-10", "between retransmissions, with a timeout of 4.2 ms"},
	{"timeout/code-12", "between retransmissions, with a timeout of 16.8 ms"},
	{"rnr/wait/code-1", "from an RNR NAK to the retransmission, with a timer of 10 us"},
	{"rnr/wait/code-12", "from an RNR NAK to the retransmission, with a timer of 0.64 ms"},
	{"rnr/wait/code-20", "from an RNR NAK to the retransmission, with a timer of 10.24 ms"},
	{"rnr/wait/code-25", "from an RNR NAK to the retransmission, with a timer of 61.44 ms"},
	{"cnp/generation", "from a marked packet to the CNP"},
	{"cnp/for-a-mark", "CNPs for a single marked packet"},
	{"cnp/marks-apart", "between marked packets sent back to back"},
	{"cnp/for-500-marks", "CNPs for 500 marked packets"},
	{"cnp/apart", "between the CNPs for 500 marked packets"},
	{"cnp/two-qps-of-a-peer", "CNPs for two queue pairs of one peer, marked at the same time"},
	{"cnp/qp-of-another-peer", "CNPs for a queue pair of another peer, marked at the same time"},
	{"rate/burst/before", "duration of 60 packets before any CNP"},
	{"rate/burst/behind-a-cnp", "duration of 60 packets after a CNP"},
	{"rate/burst/behind-ten", "duration of 60 packets after ten CNPs"},
	{"rate/comes-back", "from the tenth CNP until 60 packets take at most twice as long as before"},
}

// About describes what was measured.
func (m *Measurement) About() (about string) {
	longest := 0
	for _, a := range descriptions {
		if len(a.prefix) > longest && strings.HasPrefix(m.Name, a.prefix) {
			about, longest = a.about, len(a.prefix)
		}
	}
	return about
}
