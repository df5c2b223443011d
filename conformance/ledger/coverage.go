package ledger

// Coverage counts the rows of a part of the ledger.
type Coverage struct {
	Rows       int // all rows
	Covered    int // rows with a case
	Untestable int // rows with a reason why no case can check them
	// Musts and MustsCovered count the testable rows of level MUST.
	Musts, MustsCovered int
}

// Open is the number of rows with neither case nor reason.
func (c Coverage) Open() int { return c.Rows - c.Covered - c.Untestable }

// Add returns the sum of c and d.
func (c Coverage) Add(d Coverage) Coverage {
	return Coverage{
		c.Rows + d.Rows, c.Covered + d.Covered, c.Untestable + d.Untestable,
		c.Musts + d.Musts, c.MustsCovered + d.MustsCovered,
	}
}

// Coverage counts the requirements of a section by how cases cover them.
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

// Coverage counts the requirements of the document by how cases cover them.
func (d *Document) Coverage() (c Coverage) {
	for i := range d.Sections {
		c = c.Add(d.Sections[i].Coverage())
	}
	return c
}
