package ranks

import (
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// Arrivals says how far apart ranks called a collective operation, as means over all calls. The average
// imbalance of a call is the mean distance of the ranks from their mean arrival time, and the worst one the time
// from the first rank to the last (Qian 2010 §6.3.1). Factors are the same divided by the time of a message with
// the size of the call.
type Arrivals struct {
	Op            string        `json:"op"`
	Calls         int           `json:"calls"`
	Bytes         int           `json:"bytes"` // mean
	Average       time.Duration `json:"average_ns"`
	Worst         time.Duration `json:"worst_ns"`
	AverageFactor float64       `json:"average_factor"`
	WorstFactor   float64       `json:"worst_factor"`
	// NotRecorded is the number of calls of any operation that a rank did not record.
	NotRecorded uint64 `json:"not_recorded,omitempty"`
}

// arrivalRecord is mpi.Arrivals.
type arrivalRecord struct {
	Comms []struct {
		Context uint32 `json:"context"`
		First   int    `json:"first"`
		Size    int    `json:"size"`
		Calls   []struct {
			Op    string        `json:"op"`
			Bytes int           `json:"bytes"`
			At    time.Duration `json:"at_ns"`
		} `json:"calls"`
	} `json:"comms"`
	Messages    []time.Duration `json:"messages_ns"`
	NotRecorded uint64          `json:"not_recorded"`
}

// arrivalsKey is the name of the record in the statistics of a rank.
const arrivalsKey = "Arrivals"

// TakeArrivals returns the imbalance of arrivals by operation, in alphabetical order, from the records in the
// statistics of all ranks, and removes these, which are long. It counts calls that all ranks of the communicator
// recorded.
func TakeArrivals(all []Values) ([]Arrivals, error) {
	var records []arrivalRecord
	for _, v := range all {
		if v[arrivalsKey] == nil {
			continue
		}
		text, err := json.Marshal(v[arrivalsKey])
		if err != nil {
			return nil, err
		}
		var r arrivalRecord
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("arrivals: %w", err)
		}
		records = append(records, r)
		delete(v, arrivalsKey)
	}
	return imbalances(records), nil
}

// collectiveCall is a call of a communicator: its number, and that of ranks.
type collectiveCall struct {
	context            uint32
	first, size, index int
}

// arrivalsOf are the arrival times of a call.
type arrivalsOf struct {
	op    string
	bytes int
	at    []time.Duration
}

// imbalances returns the imbalance by operation.
func imbalances(records []arrivalRecord) []Arrivals {
	calls := map[collectiveCall]*arrivalsOf{}
	var messages []time.Duration
	var notRecorded uint64
	for _, r := range records {
		notRecorded = max(notRecorded, r.NotRecorded)
		if r.Messages != nil {
			messages = r.Messages
		}
		for _, c := range r.Comms {
			for i, call := range c.Calls {
				key := collectiveCall{c.Context, c.First, c.Size, i}
				if calls[key] == nil {
					calls[key] = &arrivalsOf{op: call.Op}
				}
				calls[key].bytes = max(calls[key].bytes, call.Bytes)
				calls[key].at = append(calls[key].at, call.At)
			}
		}
	}
	byOp := map[string]*Arrivals{}
	for key, c := range calls {
		if len(c.at) != key.size {
			continue
		}
		if byOp[c.op] == nil {
			byOp[c.op] = &Arrivals{Op: c.op, NotRecorded: notRecorded}
		}
		byOp[c.op].add(c, messages)
	}
	return means(byOp)
}

// add adds a call to sums.
func (a *Arrivals) add(c *arrivalsOf, messages []time.Duration) {
	mean, average := time.Duration(0), time.Duration(0)
	for _, at := range c.at {
		mean += at
	}
	mean /= time.Duration(len(c.at))
	for _, at := range c.at {
		average += max(at-mean, mean-at)
	}
	average /= time.Duration(len(c.at))
	worst := slices.Max(c.at) - slices.Min(c.at)
	a.Calls++
	a.Bytes += c.bytes
	a.Average += average
	a.Worst += worst
	if len(messages) > 0 {
		message := messageTime(messages, c.bytes).Seconds()
		a.AverageFactor += average.Seconds() / message
		a.WorstFactor += worst.Seconds() / message
	}
}

// messageTime returns the time of a message of n bytes, given those of 1, 2, 4, … bytes.
func messageTime(messages []time.Duration, n int) time.Duration {
	i := bits.Len(uint(max(n, 1))) - 1
	if i >= len(messages)-1 { // beyond the largest one its rate counts
		last := len(messages) - 1
		return max(messages[last]*time.Duration(max(n, 1<<last))>>last, 1)
	}
	part := time.Duration(n - 1<<i)
	if n < 1 {
		part = 0
	}
	return max(messages[i]+(messages[i+1]-messages[i])*part>>i, 1)
}

// means divides sums by the number of calls.
func means(byOp map[string]*Arrivals) (all []Arrivals) {
	for _, a := range byOp {
		n := a.Calls
		a.Bytes /= n
		a.Average /= time.Duration(n)
		a.Worst /= time.Duration(n)
		a.AverageFactor /= float64(n)
		a.WorstFactor /= float64(n)
		all = append(all, *a)
	}
	slices.SortFunc(all, func(a, b Arrivals) int { return strings.Compare(a.Op, b.Op) })
	return all
}

// WriteArrivals prints the imbalance of arrivals.
func WriteArrivals(w io.Writer, all []Arrivals) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "arrival at\tcalls\tmean bytes\taverage imbalance\tfactor\tworst imbalance\tfactor\t")
	for i := range all {
		a := &all[i]
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t\n", a.Op, a.Calls, a.Bytes, cli.Duration(a.Average), showFactor(a.AverageFactor), cli.Duration(a.Worst), showFactor(a.WorstFactor))
	}
	return t.Flush()
}

// showFactor formats a factor; empty if the time of a message is not known.
func showFactor(f float64) string {
	if f == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", f)
}
