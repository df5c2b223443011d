package sequence_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/report/sequence"
)

func text(t testing.TB, d *sequence.Diagram) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, d.WriteText(&b))
	return b.String()
}

func html(t testing.TB, d *sequence.Diagram) string {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, d.WriteHTML(&b))
	return b.String()
}

func TestTextShowsCallsMessagesPacketsAndChoices(t *testing.T) {
	const want = `
              rank 0   rank 1   rank 2
         1µs  [        |        |  rank 0: Recv from any, tag 0, 1 byte  (main.go:31)  ==> message race
         1µs  #        o        |  rank 1: Send to 0, tag 0, 1 byte  (main.go:22)
       1.1µs  #        |        o  rank 2: Send to 0, tag 0, 1 byte  (main.go:22)
         2µs  #        [        |  rank 1: Iprobe (2 times)  (main.go:25)
         3µs  ==> choice 67: event:2/3
         3µs  #        ]        |  rank 1: Iprobe returns (2 times)
         4µs  #<----------------|  rank 2 → rank 0: SEND_ONLY 40
         4µs  #        [        |  rank 1: Win.Flush rank 0  (main.go:40)  ==> it does not return
         4µs  #        #        [  rank 2: Barrier  (main.go:41)  ==> peer is lost
         5µs  #<-------#        #  rank 1 → rank 0: SEND_ONLY 40
         5µs  #        #        ]  rank 2: Barrier returns: peer is lost
         5µs  #--------X------->|  rank 0 → rank 2: ACKNOWLEDGE does not arrive
         6µs  #------->#        |  rank 0 → rank 1: ACKNOWLEDGE
         6µs  ]<================|  rank 0: Recv returns, with the message of rank 2
         8µs  |        #        x  rank 2 ends
         9µs  x        #        |  rank 0 fails: the message of rank 2 arrived first
         9µs  ==> FAILED: rank 0 on host0: the message of rank 2 arrived first
`
	if got := "\n" + text(t, sampleDiagram()); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

// svgs returns the drawings of a page, which must be well-formed, by their classes.
func svgs(t *testing.T, page string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1) {
		for in := xml.NewDecoder(strings.NewReader(svg)); ; {
			token, err := in.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "g" {
				n[e.Attr[0].Value]++
			}
		}
	}
	return n
}

func TestPageHasEachCallMessageAndPacketOnce(t *testing.T) {
	page := html(t, sampleDiagram())
	got := svgs(t, page) // of two views: the second is without packets
	for class, want := range map[string]int{
		"packet": 3, "packet lost": 1, "message": 2, "choice": 2, "failure": 2,
		"call message bad": 2, "call window open": 2, "call collective bad": 2, "call message": 6,
	} {
		if got[class] != want {
			t.Errorf("%d of class %q, want %d: %v", got[class], class, want, got)
		}
	}
	for _, text := range []string{"s, err := w.Recv(buf, mpi.AnySource, 0)", "main.go:31", "QP 0x11 PSN 7", "fabrictest replay ring.replay"} {
		if !strings.Contains(page, text) {
			t.Errorf("no %q", text)
		}
	}
}

func TestPageEscapesTexts(t *testing.T) {
	const evil = `</svg><script>alert(1)</script>"'&`
	d := sampleDiagram()
	d.Program, d.Failure, d.Calls[0].Args, d.Calls[0].Source, d.Calls[0].Err = evil, evil, evil, evil, evil
	d.Packets[0].Text, d.Packets[0].Details, d.Choices[0].Text, d.Ranks[0].Err = evil, evil, evil, evil
	page := html(t, d)
	svgs(t, page)
	if strings.Contains(page, "<script>alert") {
		t.Error("a text is not escaped")
	}
}

// In-order packets of one kind are drawn as one; a packet that overtakes is drawn.
func TestEqualPacketsAreFoldedUnlessTheyOvertake(t *testing.T) {
	d := &sequence.Diagram{Ranks: []sequence.Rank{{Host: 0, End: -1}, {Host: 1, End: -1}}}
	for i := range time.Duration(10) {
		d.Packets = append(d.Packets, sequence.Packet{From: 0, To: 1, Sent: i, Arrived: 100 + i, Text: "WRITE_MIDDLE 512"})
	}
	if got := text(t, d); strings.Count(got, "WRITE") != 1 || !strings.Contains(got, "10 × WRITE_MIDDLE 512") {
		t.Errorf("%s", got)
	}
	d.Packets[3].Sent, d.Packets[6].Sent = 6, 3
	if got := text(t, d); strings.Count(got, "WRITE") < 3 {
		t.Errorf("%s", got)
	}
}

func TestLargeRunsAreLimited(t *testing.T) {
	d := &sequence.Diagram{Ranks: []sequence.Rank{{Host: 0, End: -1}, {Host: 1, End: -1}}, Choices: []sequence.Choice{{At: 50_000, Text: "choice 1: run:1/2"}}}
	for i := range 20_000 {
		now := 10 * time.Duration(i)
		d.Calls = append(d.Calls, sequence.Call{Place: at(i%2, "Send", i), Args: "to 1", Begin: now, End: now + 5})
	}
	got := text(t, d)
	if n := strings.Count(got, "\n"); n > 4000 || strings.Count(got, "… ") != 2 || !strings.Contains(got, "choice 1") || !strings.Contains(got, "main.go:19999") {
		t.Errorf("%d lines, %d times omitted", n, strings.Count(got, "… "))
	}
}

func TestHostsWithSeveralRanksHaveALane(t *testing.T) {
	d := &sequence.Diagram{
		Ranks:   []sequence.Rank{{Host: 0, End: -1}, {Host: 0, End: -1}, {Host: 1, End: -1}},
		Packets: []sequence.Packet{{From: 0, To: 1, Sent: 1, Arrived: 2, Text: "SEND"}},
	}
	got := text(t, d)
	if !strings.Contains(got, "host 0   rank 0   rank 1   rank 2\n") || !strings.Contains(got, "host 0 → rank 2: SEND") {
		t.Errorf("%s", got)
	}
}

func TestLargePageIsSmallEnough(t *testing.T) {
	page := html(t, largeDiagram(40, 500))
	if len(page) > 4<<20 {
		t.Errorf("%d bytes", len(page))
	}
	if n := strings.Count(page, `class="message"`); n != 2*520 {
		t.Errorf("%d arrows of messages", n)
	}
}
