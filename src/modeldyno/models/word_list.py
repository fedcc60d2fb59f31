"""Words of random texts: common ones, which most tokenizers encode as one token."""

from __future__ import annotations

_TEXT = """
    a about above across after again air all almost along also always an and animal another answer any
    area around as ask at away back be because been before began begin being below best better between
    big bird black blue boat body book both box boy bring brought build but by call came can car care
    carry cause change children city clear close cold color come common could country course cut dark day
    deep did different do does done door down draw drive dry during each early earth ease east eat end
    enough even ever every example eye face fact fall family far farm fast father feel feet few field
    figure fill final find fine fire first fish five fly follow food foot for force form found four free
    friend from front full game gave get girl give go gold good got govern great green ground group grow
    had half hand happen hard has have he head hear heat help her here high him his hold home horse hot
    hour house how hundred idea if in inch interest into is island it just keep kind king know land
    language large last late learn leave left less let letter life light like line list listen little
    live long look low machine made main make man many map mark may me mean measure men might mile mind
    minute money month moon more morning most mother mountain move much music must my name near need
    never new next night no north note nothing notice noun now number of off often old on once one only
    open or order other our out over own page paper part pass pattern people perhaps person picture piece
    place plain plan plane plant play point port power press problem produce product pull put question
    quick rain ran reach read ready real record red remember rest right river road rock room round rule
    run said same saw say school science sea second see seem self sentence serve set several shape she
    ship short should show side simple since sing sit six size sleep slow small snow so some song soon
    sound south special spell stand star start state stay step still stood stop story street strong study
    such sun sure surface table take talk teach tell ten test than that the their them then there these
    they thing think this those though thought thousand three through time to together told too took top
    toward town travel tree true try turn two under unit until up upon us use usual very voice vowel wait
    walk want war warm was watch water way we week weight well went were west what wheel when where which
    while white who whole why wide will wind with wonder wood word work world would write year yes yet
    you young your
"""
WORDS = tuple(_TEXT.split())
