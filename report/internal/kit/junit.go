package kit

import (
	"encoding/xml"
	"io"
	"strconv"
	"time"
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
		Properties []Property `xml:"properties>property"`
		Cases      []Case     `xml:"testcase"`
	}
	// Case is a test case.
	Case struct {
		Name       string     `xml:"name,attr"`
		Class      string     `xml:"classname,attr"`
		Time       string     `xml:"time,attr"`
		Properties []Property `xml:"properties>property"`
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

// Fact returns a property.
func Fact(name, value string) Property { return Property{name, value} }

// Add adds a suite, and its counts to those of the file.
func (all *Suites) Add(s Suite) {
	all.Tests += s.Tests
	all.Failures += s.Failures
	all.Errors += s.Errors
	all.Skipped += s.Skipped
	all.Suites = append(all.Suites, s)
}

// Add adds a case, and counts it.
func (s *Suite) Add(c Case) {
	s.Tests++
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

// Write writes the file.
func (all *Suites) Write(w io.Writer) error {
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

// Seconds formats a time in seconds.
func Seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
