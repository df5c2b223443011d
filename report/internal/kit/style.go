// Package page has what HTML report pages share: CSS and JavaScript ([Style]), drawings of
// fabrics as SVG ([Draw]) and charts over time ([Grid]).
//
// A page is one self-contained file, and its content security policy allows only the
// script of this package. The package reads no results: callers pass what to draw.
package kit

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

// Style is the inline style sheet and script of a page.
type Style struct {
	CSS    template.CSS
	JS     template.JS
	JSHash string // SHA-256 of JS in base64, for the content security policy
}

// VerdictCSS returns the style of verdict marks and of bars that show verdict counts.
func VerdictCSS() string { return verdictCSS }

// NewStyle returns the shared style with the page's additional css and js.
func NewStyle(css, js string) Style {
	js = baseJS + js
	hash := sha256.Sum256([]byte(js))
	return Style{template.CSS(baseCSS + css), template.JS(js), base64.StdEncoding.EncodeToString(hash[:])}
}
