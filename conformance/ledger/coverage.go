package ledger

// Coverage is how much of a part of the ledger is checked.
type Coverage struct {
	Rows       int // all
	Covered    int // have a case
	Untestable int // have a reason why none can be
	// Musts and MustsCovered count the testable rows of level MUST.
	Musts, MustsCovered int
}

// Open is how many rows have neither case nor reason.
func (c Coverage) Open() int { return c.Rows - c.Covered - c.Untestable }

// Add adds up two parts.
func (c Coverage) Add(d Coverage) Coverage {
	return Coverage{
		c.Rows + d.Rows, c.Covered + d.Covered, c.Untestable + d.Untestable,
		c.Musts + d.Musts, c.MustsCovered + d.MustsCovered,
	}
}

// Coverage counts the rows of a section.
func (s *Section) Coverage() (c Coverage) {
	for i := range s.Rows {
		r := &s.Rows[i]
		covered := len(r.Cases) > 0
		c.Rows++
		switch {
		case covered:
			c.Covered++
		case r.Untestable != "":
			c.Untestable++
			continue
		}
		if r.Level == "MUST" {
			c.Musts++
			if covered {
				c.MustsCovered++
			}
		}
	}
	return c
}

// Coverage counts the rows of the document.
func (d *Document) Coverage() (c Coverage) {
	for i := range d.Sections {
		c = c.Add(d.Sections[i].Coverage())
	}
	return c
}
