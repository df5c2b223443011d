package sequence_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fabrictest/fabrictest/explore"
	"github.com/fabrictest/fabrictest/report/sequence"
)

const us = time.Microsecond

func at(rank int, call string, line int) explore.Place {
	return explore.Place{Rank: rank, Call: call, File: "ring/main.go", Line: line}
}

// sampleDiagram has three ranks: the message of rank 2 overtakes that of rank 1, and rank 0 fails.
func sampleDiagram() *sequence.Diagram {
	return &sequence.Diagram{
		Program: "./ring --fast", Command: "fabrictest replay ring.replay --html ring.html", Fabric: "softroce",
		Ranks: []sequence.Rank{{Host: 0, End: 9 * us, Err: "the message of rank 2 arrived first"}, {Host: 1, End: -1}, {Host: 2, End: 8 * us}},
		Calls: []sequence.Call{
			{Place: at(0, "Recv", 31), Args: "from any, tag 0, 1 byte", Source: "s, err := w.Recv(buf, mpi.AnySource, 0)", Begin: us, End: 6 * us},
			{Place: at(1, "Send", 22), Args: "to 0, tag 0, 1 byte", Begin: us, End: us},
			{Place: at(2, "Send", 22), Args: "to 0, tag 0, 1 byte", Begin: us + 100, End: us + 100},
			{Place: at(1, "Iprobe", 25), Begin: 2 * us, End: 2 * us},
			{Place: at(1, "Iprobe", 25), Begin: 3 * us, End: 3 * us},
			{Place: at(1, "Win.Flush", 40), Args: "rank 0", Begin: 4 * us, End: -1},
			{Place: at(2, "Barrier", 41), Begin: 4 * us, End: 5 * us, Err: "peer is lost"},
		},
		Messages: []sequence.Message{{From: 2, To: 0}},
		Packets: []sequence.Packet{
			{From: 2, To: 0, Sent: us + 200, Arrived: 4 * us, Text: "SEND_ONLY 40", Details: "QP 0x11 PSN 7"},
			{From: 1, To: 0, Sent: us + 50, Arrived: 5 * us, Text: "SEND_ONLY 40"},
			{From: 0, To: 1, Sent: 5 * us, Arrived: 6 * us, Text: "ACKNOWLEDGE"},
			{From: 0, To: 2, Sent: 5 * us, Lost: true, Text: "ACKNOWLEDGE"},
		},
		Choices:  []sequence.Choice{{At: 3 * us, Text: "choice 67: event:2/3"}},
		Failure:  "rank 0 on host0: the message of rank 2 arrived first",
		Findings: []explore.Finding{{Kind: "message race", Text: "two messages", Places: []explore.Place{at(0, "Recv", 31)}}},
	}
}

// largeDiagram has many ranks that exchange messages with neighbours, in rounds that end with a collective, and
// packets for each message.
func largeDiagram(ranks, messages int) *sequence.Diagram {
	rng := rand.New(rand.NewPCG(1, 2))
	d := &sequence.Diagram{Program: "halo --iterations 12", Fabric: "softroce", Failure: "rank 17 on host17: the border is old"}
	for r := range ranks {
		d.Ranks = append(d.Ranks, sequence.Rank{Host: r, End: -1})
	}
	now := 10 * us
	for n := 0; n < messages; {
		first := len(d.Calls)
		for r := range ranks {
			begin := now + time.Duration(rng.IntN(500))
			d.Calls = append(d.Calls, sequence.Call{Place: at(r, "Isend", 50), Args: fmt.Sprintf("to %d, tag 1, 4096 bytes", (r+1)%ranks), Begin: begin, End: begin})
		}
		for r := range ranks {
			begin := now + time.Duration(600+rng.IntN(200))
			d.Calls = append(d.Calls, sequence.Call{Place: at(r, "Recv", 52), Args: fmt.Sprintf("from %d, tag 1, 4096 bytes", (r+ranks-1)%ranks), Begin: begin, End: begin + 3*us})
		}
		for r := range ranks {
			sent := d.Calls[first+r].Begin
			for k := range time.Duration(4) {
				d.Packets = append(d.Packets, sequence.Packet{From: r, To: (r + 1) % ranks, Sent: sent + k, Arrived: sent + 2*us + k, Text: "SEND_MIDDLE 1024"})
			}
			d.Messages = append(d.Messages, sequence.Message{From: first + r, To: first + ranks + (r+1)%ranks})
			n++
		}
		now += 5 * us
		for r := range ranks {
			begin := now + time.Duration(rng.IntN(900))
			end := now + 2*us
			if n >= messages && r != 17 {
				end = -1
			}
			d.Calls = append(d.Calls, sequence.Call{Place: at(r, "Allreduce", 60), Args: "sum of float64, 8 bytes", Begin: begin, End: end})
		}
		now += 3 * us
	}
	d.Ranks[17] = sequence.Rank{Host: 17, End: now, Err: "the border is old"}
	d.Choices = []sequence.Choice{{At: 21 * us, Text: "choice 9001: event:1/2"}, {At: 52 * us, Text: "choice 12003: spray:2/4"}}
	return d
}
