package kit

import (
	"encoding/xml"
	"io"
	"strconv"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
)

// The JUnit dialect understood by Jenkins, GitLab and GitHub actions.
type (
	// Suites is the root element of a file.
	Suites struct {
		XMLName  xml.Name `xml:"testsuites"`
		Name     string   `xml:"name,attr"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Errors   int      `xml:"errors,attr"`
		Skipped  int      `xml:"skipped,attr"`
		Time     string   `xml:"time,attr"`
		Suites   []Suite  `xml:"testsuite"`
	}
	// Suite is a test suite.
	Suite struct {
		Name       string     `xml:"name,attr"`
		Tests      int        `xml:"tests,attr"`
		Failures   int        `xml:"failures,attr"`
		Errors     int        `xml:"errors,attr"`
		Skipped    int        `xml:"skipped,attr"`
		Time       string     `xml:"time,attr"`
		Timestamp  string     `xml:"timestamp,attr"`
		Properties Properties `xml:"properties>property"`
		Cases      []Case     `xml:"testcase"`
		took       time.Duration
	}
	// Case is a test case.
	Case struct {
		Name       string     `xml:"name,attr"`
		Class      string     `xml:"classname,attr"`
		Time       string     `xml:"time,attr"`
		Properties Properties `xml:"properties>property"`
		Skipped    *Problem   `xml:"skipped"`
		Error      *Problem   `xml:"error"`
		Failure    *Problem   `xml:"failure"`
		SystemOut  Text       `xml:"system-out"`
	}
	// Problem is a failure, error or skip.
	Problem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr,omitempty"`
		Text    string `xml:",cdata"`
	}
	// Text is character data.
	Text struct {
		Text string `xml:",cdata"`
	}
	// Property is a name and a value.
	Property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
)

// Properties are names and values.
type Properties []Property

// Add adds a property, in one line, unless its value is empty.
func (p *Properties) Add(name, value string) {
	if value != "" {
		*p = append(*p, Property{name, cli.PrintableLine(value)})
	}
}

// NewProblem returns a problem of a kind, with a message in one line and a text.
func NewProblem(message, kind, text string) *Problem {
	return &Problem{cli.PrintableLine(message), cli.PrintableLine(kind), cli.Printable(text)}
}

// NewSuite returns an empty suite with the start time of the run.
func NewSuite(name string, started time.Time) Suite {
	return Suite{Name: cli.PrintableLine(name), Timestamp: started.UTC().Format(time.DateOnly + "T15:04:05")}
}

// Add adds a suite, and its counts to those of the file.
func (all *Suites) Add(s Suite) {
	s.Time = seconds(s.took)
	all.Tests += s.Tests
	all.Failures += s.Failures
	all.Errors += s.Errors
	all.Skipped += s.Skipped
	all.Suites = append(all.Suites, s)
}

// Add adds a case with its duration, and counts it by its result. The class of the case is
// the suite's name followed by area.
func (s *Suite) Add(c Case, area string, took time.Duration) {
	c.Name, c.Class, c.Time = cli.PrintableLine(c.Name), s.Name+cli.PrintableLine(area), seconds(took)
	c.SystemOut.Text = cli.Printable(c.SystemOut.Text)
	s.Tests++
	s.took += took
	switch {
	case c.Failure != nil:
		s.Failures++
	case c.Error != nil:
		s.Errors++
	case c.Skipped != nil:
		s.Skipped++
	}
	s.Cases = append(s.Cases, c)
}

// Write writes the suites as a JUnit file, with the duration of the run.
func (all *Suites) Write(w io.Writer, took time.Duration) error {
	all.Time = seconds(took)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
