package secrets

const ScanAhead = 1024

type Scanner struct{}

func (s *Scanner) Scan(buf []byte, upto int, found func(off int, f Finding) bool) bool { return true }
const DetectorsVersion = 1

type Kind struct{ Name, Description string }

func Kinds() []Kind { return nil }
