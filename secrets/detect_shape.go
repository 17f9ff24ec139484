package secrets

// A class is a set of bytes, as a table.
type class struct {
	in [256]bool
	// strict: a dash behind the last byte means that this is part of something longer,
	// as it does behind hex digits.
	strict bool
	// mixed: random text of the class changes all the time between upper case, lower
	// case and digits.
	mixed bool
}

// newClass makes a class of ranges, "azAZ", and of single bytes.
func newClass(ranges, single string) class {
	var c class
	for i := 0; i+1 < len(ranges); i += 2 {
		for b := int(ranges[i]); b <= int(ranges[i+1]); b++ {
			c.in[b] = true
		}
	}
	for i := range len(single) {
		c.in[single[i]] = true
	}
	return c
}

func (c class) asStrict() class { c.strict = true; return c }
func (c class) asMixed() class  { c.mixed = true; return c }

var (
	digits  = newClass("09", "")
	hex     = newClass("09af", "").asStrict()
	anyHex  = newClass("09afAF", "").asStrict()
	uuid    = newClass("09af", "-").asStrict()
	lower   = newClass("az", "")
	upper   = newClass("AZ09", "")
	base32  = newClass("AZ27", "")
	bech32  = newClass("", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")
	alnum   = newClass("azAZ09", "").asMixed()
	word    = newClass("azAZ09", "_-").asMixed() // what a run is made of
	base64s = newClass("azAZ09", "+/").asMixed()
	base64p = newClass("azAZ09", "+/_=-").asMixed()

	// wide is what stands between the beginning of a token and its first long run.
	wide = newClass("azAZ09", "_-+/=.:$")
	// inRun is what [outside] takes for a run.
	inRun = newClass("azAZ09", "_-\x7f")
	// joined is what a token cannot stand behind: it would be the end of a longer word.
	joined = newClass("azAZ09", "_\x7f")
	// within is what is joined and cannot be the end of an escape.
	within = newClass("glopqquzGZ", "s_\x7f")
)

// A part is a literal, or between min and max bytes of a class.
type part struct {
	lit      string
	of       *class
	min, max int
}

func lit(s string) part                 { return part{lit: s} }
func some(of *class, min, max int) part { return part{of: of, min: min, max: max} }
func exactly(of *class, n int) part     { return part{of: of, min: n, max: n} }
func shape(parts ...part) []part        { return parts }
func plain(s string, p part) []part     { return []part{lit(s), p} }
func (p part) isLit() bool              { return p.of == nil }

// match returns how many bytes at b's beginning have the shape, and the longest part
// of a class among them; 0 when they have not. Each part takes what it can: what
// follows a part of a class begins with something else. Open shapes can go on behind.
func match(b []byte, parts []part, open bool) (n int, body []byte, of *class) {
	for _, p := range parts {
		if p.isLit() {
			if len(b)-n < len(p.lit) || string(b[n:n+len(p.lit)]) != p.lit {
				return 0, nil, nil
			}
			n += len(p.lit)
			continue
		}
		k := 0
		for k < p.max && n+k < len(b) && p.of.in[b[n+k]] {
			k++
		}
		if k < p.min {
			return 0, nil, nil
		}
		if k > len(body) {
			body, of = b[n:n+k], p.of
		}
		n += k
	}
	if last := parts[len(parts)-1]; !open && n < len(b) {
		if joined.in[b[n]] || !last.isLit() && (last.of.in[b[n]] || last.of.strict && b[n] == '-') {
			return 0, nil, nil
		}
	}
	return n, body, of
}

// hasRun reports whether minRun bytes of a run lie near b's beginning, so that the
// search for runs comes to it.
func hasRun(b []byte) bool {
	n := 0
	for _, c := range b[:min(len(b), maxLead+minRun)] {
		if n++; !word.in[c] {
			n = 0
		}
		if n == minRun {
			return true
		}
	}
	return false
}
