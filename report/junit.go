package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// The JUnit dialect that Jenkins, GitLab and the GitHub actions for it agree on.
type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Errors   int          `xml:"errors,attr"`
		Skipped  int          `xml:"skipped,attr"`
		Time     string       `xml:"time,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name       string          `xml:"name,attr"`
		Tests      int             `xml:"tests,attr"`
		Failures   int             `xml:"failures,attr"`
		Errors     int             `xml:"errors,attr"`
		Skipped    int             `xml:"skipped,attr"`
		Time       string          `xml:"time,attr"`
		Timestamp  string          `xml:"timestamp,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Cases      []junitCase     `xml:"testcase"`
	}
	junitCase struct {
		Name       string          `xml:"name,attr"`
		Class      string          `xml:"classname,attr"`
		Time       string          `xml:"time,attr"`
		Properties []junitProperty `xml:"properties>property"`
		Skipped    *junitProblem   `xml:"skipped"`
		Error      *junitProblem   `xml:"error"`
		Failure    *junitProblem   `xml:"failure"`
		SystemOut  junitText       `xml:"system-out"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",cdata"`
	}
	junitText struct {
		Text string `xml:",cdata"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
)

// WriteJUnit writes a run as JUnit XML: a suite for each tier, a case for each
// scenario. A scenario that failed is a failure, a broken one an error. Times
// are those of the wall.
func WriteJUnit(w io.Writer, r *Run) error {
	all := junitSuites{Name: "fabrictest", Time: seconds(r.Wall)}
	for _, tier := range r.tiers() {
		s := r.junitSuite(tier)
		all.Tests += s.Tests
		all.Failures += s.Failures
		all.Errors += s.Errors
		all.Skipped += s.Skipped
		all.Suites = append(all.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(&all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Run) junitSuite(tier string) junitSuite {
	s := junitSuite{
		Name: "fabrictest." + visible(tier), Timestamp: r.Started.UTC().Format(time.DateOnly + "T15:04:05"),
		Properties: []junitProperty{
			{"fabrictest.version", visible(r.Tool)},
			{"seed", strconv.FormatUint(r.Seed, 10)},
			{"command", visible(r.Command)},
			{"machine", visible(fmt.Sprintf("%s/%s %s, %d CPUs", r.Machine.OS, r.Machine.Arch, r.Machine.Kernel, r.Machine.CPUs))},
		},
	}
	wall := time.Duration(0)
	for i := range r.Scenarios {
		res := &r.Scenarios[i]
		if res.Tier != tier {
			continue
		}
		s.Tests++
		wall += res.Wall
		s.Cases = append(s.Cases, res.junitCase(s.Name))
		switch res.Verdict {
		case Passed:
		case Skipped:
			s.Skipped++
		case Failed:
			s.Failures++
		default:
			s.Errors++
		}
	}
	s.Time = seconds(wall)
	return s
}

func (r *Result) junitCase(class string) junitCase {
	c := junitCase{
		Name: visible(r.Name), Class: class, Time: seconds(r.Wall),
		Properties: []junitProperty{{"seed", strconv.FormatUint(r.Seed, 10)}, {"elapsed", r.Elapsed.String()}},
		SystemOut:  junitText{r.junitOutput()},
	}
	if r.Title != "" {
		c.Properties = append(c.Properties, junitProperty{"title", visible(r.Title)})
	}
	if len(r.Tags) > 0 {
		c.Properties = append(c.Properties, junitProperty{"tags", visible(strings.Join(r.Tags, " "))})
	}
	if r.Provider != "" {
		c.Properties = append(c.Properties, junitProperty{"provider", visible(r.Provider)})
	}
	if len(r.Quirks) > 0 {
		c.Properties = append(c.Properties, junitProperty{"quirks", visible(strings.Join(r.Quirks, " "))})
	}
	if r.Netem {
		c.Properties = append(c.Properties, junitProperty{"impaired by", "netem"})
	}
	problem := &junitProblem{Message: Visible(r.Reason), Type: string(r.Verdict), Text: "\n" + r.explanation() + "\n"}
	switch r.Verdict {
	case Passed:
	case Skipped:
		c.Skipped = &junitProblem{Message: Visible(r.Reason)}
	case Failed:
		c.Failure = problem
	default:
		problem.Type = string(Broken)
		c.Error = problem
	}
	return c
}

// explanation is why a result is bad, for whoever sees nothing else of it.
func (r *Result) explanation() string {
	var b strings.Builder
	b.WriteString(r.why())
	for _, c := range r.Checks {
		if !c.OK {
			fmt.Fprintf(&b, "\n%s: want %s, got %s", c.Name, c.Want, c.Got)
		}
	}
	if r.Detail != "" {
		b.WriteString("\n\n" + strings.TrimRight(r.Detail, "\n"))
	}
	if r.Replay != "" {
		b.WriteString("\n\nTo repeat it alone: " + r.Replay)
	}
	return visible(b.String())
}

func (r *Result) junitOutput() string {
	var b strings.Builder
	fmt.Fprintf(&b, "replay: %s\n", r.Replay)
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%s: %s (%d bytes)\n", f.Kind, f.Path, f.Size)
	}
	return visible(b.String())
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
