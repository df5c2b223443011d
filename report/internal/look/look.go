// Package look is what the pages of reports have in common: colours for bright and
// dark screens, tables, verdicts, commands to be copied, and a filter. A page is one
// file that needs nothing else, and runs no script but its own.
package look

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
)

var (
	//go:embed base.css
	baseCSS string
	//go:embed verdicts.css
	verdictCSS string
	//go:embed base.js
	baseJS string
)

// Style is what a page looks like and what it does.
type Style struct {
	CSS    template.CSS
	JS     template.JS
	JSHash string // the only script that the browser may run
}

// VerdictCSS is for pages about verdicts on clauses: their signs and colours, and bars
// of their shares.
func VerdictCSS() string { return verdictCSS }

// With adds what a page has of its own.
func With(css, js string) Style {
	js = baseJS + js
	hash := sha256.Sum256([]byte(js))
	return Style{template.CSS(baseCSS + css), template.JS(js), base64.StdEncoding.EncodeToString(hash[:])}
}
